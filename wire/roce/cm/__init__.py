"""Messages of the communication manager. IBTA vol. 1, chapter 12; annex A11."""
