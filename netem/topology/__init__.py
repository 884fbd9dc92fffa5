"""What a lab is: the file, the model, the plan. Pure: text in, values out."""
