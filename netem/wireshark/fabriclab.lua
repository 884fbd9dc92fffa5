-- RoCE v2 and MRC in Wireshark and tshark, 4.0 and later: what the built-in dissector leaves out.
--
--   mrc        every header of MRC, PSNs of a SACK's bitmap, entropy values, derived values
--   fabriclab  for all packets on UDP 4791: is the ICRC right; what a switch has cut away; CNPs;
--              the bits of congestion notification
--
-- RoCE goes to the built-in dissector first, MRC does not: its opcodes are unknown there.
-- README.md beside this file lists the filter fields. Facts: OCP MRC 1.0 as cited by public
-- implementations; IBTA volume 1, annex A17 (RoCE v2). Lua 5.2 to 5.4, no bit operators.

local ROCE_PORT, MRC_PORT = 4791, 4971
local BTH, ICRC = 12, 4

---------------------------------------------------------------------------------------------
-- CRC-32, by what this Lua has for bits: operators, a library, or a table of our own

local function operators()
  local make = load and load("return function(a, b) return a ~ b end, function(a) return a >> 8 end")
  if make then return make() end
  local library = rawget(_G, "bit32") or rawget(_G, "bit")
  if not library then
    local found, loaded = pcall(require, "bit")
    library = found and loaded or nil
  end
  if library then
    local bxor, shift = library.bxor, library.rshift
    return bxor, function(a) return shift(a, 8) end
  end
  local function xor(a, b) -- a bit at a time: slow, and right everywhere
    local result, place = 0, 1
    while a > 0 or b > 0 do
      local x, y = a % 2, b % 2
      if x ~= y then result = result + place end
      a, b, place = (a - x) / 2, (b - y) / 2, place * 2
    end
    return result
  end
  return xor, function(a) return math.floor(a / 256) end
end

local xor, byte_down = operators()

local CRC = {}
for number = 0, 255 do
  local crc = number
  for _ = 1, 8 do
    local odd = crc % 2 == 1
    crc = math.floor(crc / 2)
    if odd then crc = xor(crc, 0xEDB88320) % 4294967296 end
  end
  CRC[number] = crc
end

local function crc32(crc, text)
  local byte = string.byte
  for at = 1, #text do
    crc = xor(byte_down(crc), CRC[xor(crc, byte(text, at)) % 256])
  end
  return crc
end

-- The header fields that routers may change count as ones, by their offsets from the IP header.
local MASKS = {
  [4] = { size = 40, ones = { 1, 8, 10, 11, 26, 27, 32 } },
  [6] = { size = 60, ones = { 1, 2, 3, 7, 46, 47, 52 } },
}

-- Return the ICRC of headers (IP to BTH, a string) and all that follows up to the ICRC.
local function icrc(version, headers, rest)
  local mask = MASKS[version]
  local bytes = { string.byte(headers, 1, mask.size) }
  for _, offset in ipairs(mask.ones) do bytes[offset + 1] = 255 end
  if version == 6 then bytes[1] = 0x6F end
  local crc = crc32(4294967295, string.rep("\255", 8))
  crc = crc32(crc, string.char((table.unpack or unpack)(bytes)))
  return xor(crc32(crc, rest), 4294967295) % 4294967296
end

---------------------------------------------------------------------------------------------
-- What lies around the UDP payload, from the innermost headers seen so far

local ip_field, ipv6_field = Field.new("ip"), Field.new("ipv6")
local udp_field, label_field = Field.new("udp"), Field.new("ipv6.flow")
local udp_length_field = Field.new("udp.length")

local function last(field)
  local all = { field() }
  return all[#all]
end

-- Return IP version and the bytes of IP and UDP headers, or nil where they cannot be had.
local function headers_before()
  local udp = last(udp_field)
  if not udp or not udp.range then return nil end
  local start = udp.range:offset()
  for version, field in pairs({ [4] = ip_field, [6] = ipv6_field }) do
    local ip = last(field)
    local size = version == 4 and 20 or 40
    if ip and ip.range and ip.range:len() >= size then
      local head = ip.range:raw(0, size)
      local is_it = math.floor(string.byte(head, 1) / 16) == version
      if is_it and ip.range:offset() + size == start then
        return version, head .. udp.range:raw(0, 8)
      end
    end
  end
  return nil
end

---------------------------------------------------------------------------------------------
-- fabriclab: for every packet on the port

local fabric = Proto("fabriclab", "fabriclab: ICRC, trimming, congestion")

local STATUS = { [0] = "bad", [1] = "good", [2] = "not checked" }
local f = {
  icrc = ProtoField.uint32("fabriclab.icrc", "ICRC", base.HEX),
  status = ProtoField.uint8("fabriclab.icrc.status", "ICRC status", base.DEC, STATUS),
  expected = ProtoField.uint32("fabriclab.icrc.expected", "ICRC expected", base.HEX),
  trimmed = ProtoField.bool("fabriclab.trimmed", "Trimmed"),
  original = ProtoField.uint32("fabriclab.trimmed.original", "UDP payload before, bytes"),
  cut = ProtoField.uint32("fabriclab.trimmed.cut", "Cut away, bytes"),
  fecn = ProtoField.bool("fabriclab.bth.fecn", "FECN"),
  becn = ProtoField.bool("fabriclab.bth.becn", "BECN"),
  cnp = ProtoField.none("fabriclab.cnp", "Congestion Notification Packet"),
  cnp_qp = ProtoField.uint24("fabriclab.cnp.destqp", "Slow down QP", base.HEX),
  cnp_reserved = ProtoField.bytes("fabriclab.cnp.reserved", "Reserved (zero)"),
}
fabric.fields = f
local e = {
  bad = ProtoExpert.new("fabriclab.icrc.bad", "ICRC is wrong", expert.group.CHECKSUM, expert.severity.ERROR),
  trimmed = ProtoExpert.new("fabriclab.trimmed.note", "Trimmed by a switch, ICRC not checkable",
    expert.group.SEQUENCE, expert.severity.NOTE),
}
fabric.experts = e
fabric.prefs.check_icrc = Pref.bool("Verify the ICRC", true, "Takes about a millisecond for 4 KiB")

-- Return the bytes that are missing because a switch has cut them away, 0 where none are.
local function bytes_cut(tvb, pinfo)
  local udp_length = last(udp_length_field)
  if pinfo.caplen < pinfo.len or not udp_length then return 0 end -- the capture cut it, perhaps
  return math.max(0, udp_length.value - 8 - tvb:captured_len())
end

local function show_trimmed(tvb, tree, cut)
  local item = tree:add(f.trimmed, true):set_generated()
  item:add_proto_expert_info(e.trimmed)
  tree:add(f.original, tvb:captured_len() + cut):set_generated()
  tree:add(f.cut, cut):set_generated()
end

local function show_icrc(tvb, pinfo, tree, cut)
  local size = tvb:captured_len()
  if cut > 0 or size < BTH + ICRC then return end
  if tvb:reported_len() > size then return end -- cut by the capture
  local range = tvb(size - ICRC, ICRC)
  local found = range:le_uint()
  local item = tree:add_le(f.icrc, range)
  local version, headers = headers_before()
  if not version or not fabric.prefs.check_icrc then
    item:append_text(" [not checked]")
    tree:add(f.status, 2):set_generated()
    return
  end
  local rest = size - BTH - ICRC
  local expected = icrc(version, headers .. tvb:raw(0, BTH), rest > 0 and tvb:raw(BTH, rest) or "")
  if expected == found then
    item:append_text(" [good]")
    tree:add(f.status, 1):set_generated()
    return
  end
  item:append_text(" [bad]")
  tree:add(f.status, 0):set_generated()
  tree:add(f.expected, expected):set_generated()
  item:add_proto_expert_info(e.bad, string.format("ICRC is 0x%08x, should be 0x%08x", found, expected))
end

local CNP = 0x81

local function show_cnp(tvb, pinfo, tree)
  local item = tree:add(f.cnp, tvb(0, math.min(tvb:captured_len(), 28)))
  item:add(f.cnp_qp, tvb(5, 3))
  if tvb:captured_len() >= 28 then item:add(f.cnp_reserved, tvb(12, 16)) end
  pinfo.cols.info = string.format("CNP for QP 0x%06x", tvb(5, 3):uint())
end

---------------------------------------------------------------------------------------------
-- mrc

local mrc = Proto("mrc", "Multipath Reliable Connection")

local OPCODES = {
  [0xC6] = "WRITE First", [0xC7] = "WRITE Middle", [0xC8] = "WRITE Last",
  [0xC9] = "WRITE Last with Immediate", [0xCA] = "WRITE Only", [0xCB] = "WRITE Only with Immediate",
  [0xD1] = "Acknowledge", [0xD8] = "Endpoint Request", [0xD9] = "Endpoint Response",
  [0xDC] = "SACK", [0xDD] = "NACK", [0xDE] = "Probe",
}
local VERDICTS = { [0] = "None", [1] = "SKIP_ONCE", [2] = "ALWAYS_SKIP", [3] = "Reserved" }
local REASONS = {
  [0x01] = "TRIMMED", [0x02] = "TRIMMED_LASTHOP", [0x06] = "NO_BITMAP", [0x07] = "NO_PKT_BUFFER",
  [0x0A] = "NO_RESOURCE", [0x0B] = "PSN_OOR_WINDOW", [0x19] = "UNEXP_EVENT",
}
local OPERATIONS = { [0] = "PORT_STATUS_UPDATE", [1] = "EV_PROBE" }
local SYNDROMES = { [0] = "ACK", [1] = "RNR NAK", [2] = "Reserved", [3] = "NAK" }
local NAKS = { [0x60] = "PSN sequence error", [0x61] = "invalid request", [0x62] = "remote access error",
  [0x63] = "remote operational error", [0x64] = "invalid RD request" }

local p = {}
local function field(name, kind, title, ...)
  p[name] = ProtoField[kind]("mrc." .. name, title, ...)
end
field("opcode", "uint8", "Opcode", base.HEX, OPCODES)
field("migreq", "bool", "MigReq")
field("se", "bool", "Solicited event")
field("padcnt", "uint8", "Pad bytes")
field("tver", "uint8", "Transport version")
field("p_key", "uint16", "P_Key", base.HEX)
field("destqp", "uint24", "Destination QP", base.HEX)
field("ackreq", "bool", "AckReq")
field("rtx", "bool", "Retransmission (rtx)")
field("ts", "bool", "Timestamp header present (ts)")
field("psn", "uint24", "PSN", base.DEC_HEX)
field("ev", "uint32", "Entropy value (EV)", base.HEX)
field("ev.label", "uint16", "EV[31:16], from the flow label", base.HEX)
field("ev.port", "uint16", "EV[15:0], from the UDP source port", base.HEX)
field("meth", "none", "METH")
field("rqmsn", "uint16", "RQMSN")
field("msn", "uint16", "MSN")
field("tseth", "none", "TSETH")
field("timestamp", "uint16", "Tx timestamp")
field("timestamp.ns", "uint32", "Tx timestamp, ns (128 ns a tick)")
field("tsr", "bool", "Resolution is the implementation's (tsr)")
field("ftype", "uint8", "ftype")
field("reth", "none", "RETH")
field("va", "uint64", "Virtual address", base.HEX)
field("r_key", "uint32", "R_Key", base.HEX)
field("dmalen", "uint32", "DMA length, of the message")
field("immdt", "uint32", "Immediate", base.HEX)
field("payload", "bytes", "Payload")
field("payload_length", "uint32", "Payload length")
field("aeth", "none", "AETH")
field("aeth.syndrome", "uint8", "Syndrome", base.HEX, NAKS)
field("aeth.kind", "uint8", "Kind", base.DEC, SYNDROMES)
field("aeth.msn", "uint24", "MSN")
field("sack", "none", "SETH and CC_STATE")
field("sack.verdict", "uint8", "Verdict on the path (m)", base.DEC, VERDICTS)
field("sack.probe", "bool", "Answers a probe (pr)")
field("sack.offset_of_ack", "int16", "Ack PSN offset")
field("sack.probe_id", "uint16", "Probe id")
field("sack.ack_psn", "uint24", "PSN that triggered this SACK", base.DEC_HEX)
field("entropy", "uint32", "Entropy reflected", base.HEX)
field("entropy.label", "uint16", "EV[31:16]", base.HEX)
field("entropy.port", "uint16", "EV[15:0]", base.HEX)
field("spdcid", "uint16", "SPDCID", base.HEX)
field("dpdcid", "uint16", "DPDCID", base.HEX)
field("sack.cack_psn", "uint24", "Cumulative ack PSN", base.DEC_HEX)
field("cc_type", "uint8", "cc_type")
field("cc_flags", "uint8", "cc_fl", base.HEX)
field("sack.mpr", "uint8", "MPR, units of 128 PSNs")
field("sack.mpr.psns", "uint32", "MPR, PSNs")
field("sack.offset", "int16", "SACK offset")
field("sack.bitmap", "uint64", "Bitmap", base.HEX)
field("sack.base", "uint24", "PSN of bit 0", base.DEC_HEX)
field("sack.psn", "uint24", "PSN received", base.DEC_HEX)
field("sack.received", "string", "PSNs received")
field("sack.missing", "uint24", "PSN missing", base.DEC_HEX)
field("sack.ooo", "uint16", "Packets above the cumulative ack")
field("sack.restore", "bool", "Restore the window")
field("sack.penalty", "uint8", "Penalty, of 128")
field("sack.rcvd_units", "uint24", "Received, units of 256 bytes")
field("sack.rcvd_bytes", "uint32", "Received, bytes")
field("nack", "none", "NETH")
field("nack.reason", "uint8", "Reason", base.HEX, REASONS)
field("nack.psn", "uint24", "PSN refused", base.DEC_HEX)
field("vendor_info", "uint8", "Vendor info", base.HEX)
field("probe", "none", "PETH")
field("probe.id", "uint16", "Probe id")
field("request", "none", "ERTH")
field("response", "none", "EETH")
field("endpoint.op", "uint8", "Operation", base.DEC, OPERATIONS)
field("endpoint.id", "uint16", "Request id", base.DEC)
field("endpoint.ports", "uint32", "Ports that can be reached", base.HEX)
field("reserved", "bytes", "Reserved, and not zero")
mrc.fields = p

local unknown = ProtoExpert.new("mrc.opcode.unknown", "No opcode of MRC", expert.group.PROTOCOL, expert.severity.WARN)
local short = ProtoExpert.new("mrc.short", "Shorter than its headers", expert.group.MALFORMED, expert.severity.ERROR)
mrc.experts = { unknown, short }

mrc.prefs.se_first = Pref.bool("BTH: SE before M", false, "As the IBTA has them; most sources of MRC say M, SE")
mrc.prefs.label_low = Pref.bool("EV: low half in the flow label", false, "Most sources say the high half")
mrc.prefs.op_shift = Pref.uint("EETH: shift of op", 2, "2 or 4: sources differ")

local PSNS = 16777216
local function psn_of(number) return number % PSNS end

-- Return all PSNs whose bit is set, lowest first. Bit 0 is the last bit of the last byte.
local function set_bits(range, first)
  local found = {}
  for number = 0, 63 do
    if range:bitfield(63 - number, 1) == 1 then found[#found + 1] = psn_of(first + number) end
  end
  return found
end

-- Return "5, 7-9" for 5, 7, 8, 9.
local function in_words(psns)
  local runs, start = {}, 1
  for at = 1, #psns do
    if at == #psns or psns[at + 1] ~= psn_of(psns[at] + 1) then
      local one = start == at and tostring(psns[at]) or psns[start] .. "-" .. psns[at]
      runs[#runs + 1], start = one, at + 1
    end
  end
  return table.concat(runs, ", ")
end

local function add_flag(tree, name, range, bit) tree:add(p[name], range, range:bitfield(bit, 1) == 1) end

local function add_timestamp(tree, tvb, at)
  tree:add(p.timestamp, tvb(at, 2))
  tree:add(p["timestamp.ns"], tvb(at, 2), tvb(at, 2):uint() * 128):set_generated()
end

local function add_stamp(tree, tvb, at) -- with its resolution and type behind it
  add_timestamp(tree, tvb, at)
  add_flag(tree, "tsr", tvb(at + 2, 1), 0)
  tree:add(p.ftype, tvb(at + 3, 1), tvb(at + 3, 1):bitfield(4, 4))
end

local function add_entropy(tree, tvb, at)
  local item = tree:add(p.entropy, tvb(at, 4))
  item:add(p["entropy.label"], tvb(at, 2))
  item:add(p["entropy.port"], tvb(at + 2, 2))
end

local function add_connection(tree, tvb, at)
  tree:add(p.spdcid, tvb(at, 2))
  tree:add(p.dpdcid, tvb(at + 2, 2))
end

local function add_cc(tree, range)
  tree:add(p.cc_type, range, range:bitfield(0, 4))
  tree:add(p.cc_flags, range, range:bitfield(4, 4))
end

local HEADERS = {} -- of each: size, and what adds it to a tree; some say a few words for the list

HEADERS.meth = { 4, function(tvb, tree)
  local item = tree:add(p.meth, tvb(0, 4))
  item:add(p.rqmsn, tvb(0, 2))
  item:add(p.msn, tvb(2, 2))
  return "MSN=" .. tvb(2, 2):uint()
end }
HEADERS.tseth = { 4, function(tvb, tree) add_stamp(tree:add(p.tseth, tvb(0, 4)), tvb, 0) end }
HEADERS.reth = { 16, function(tvb, tree)
  local item = tree:add(p.reth, tvb(0, 16))
  item:add(p.va, tvb(0, 8))
  item:add(p.r_key, tvb(8, 4))
  item:add(p.dmalen, tvb(12, 4))
end }
HEADERS.immdt = { 4, function(tvb, tree)
  tree:add(p.immdt, tvb(0, 4))
  return string.format("Imm=0x%08x", tvb(0, 4):uint())
end }
HEADERS.aeth = { 4, function(tvb, tree)
  local item, syndrome = tree:add(p.aeth, tvb(0, 4)), tvb(0, 1):uint()
  item:add(p["aeth.syndrome"], tvb(0, 1))
  item:add(p["aeth.kind"], tvb(0, 1), tvb(0, 1):bitfield(1, 2))
  item:add(p["aeth.msn"], tvb(1, 3))
  return (NAKS[syndrome] and "NAK " .. NAKS[syndrome] .. " " or "") .. "MSN=" .. tvb(1, 3):uint()
end }

HEADERS.sack = { 36, function(tvb, tree)
  local item = tree:add(p.sack, tvb(0, 36))
  local flags, is_answer = tvb(1, 1), tvb(1, 1):bitfield(6, 1) == 1
  local cack, offset, first = tvb(13, 3):uint(), tvb(2, 2):int(), tvb(13, 3):uint() + tvb(18, 2):int()
  item:add(p["sack.verdict"], flags, flags:bitfield(1, 2))
  add_flag(item, "sack.probe", flags, 6)
  if is_answer then
    item:add(p["sack.probe_id"], tvb(2, 2))
  else
    item:add(p["sack.offset_of_ack"], tvb(2, 2))
    item:add(p["sack.ack_psn"], tvb(2, 2), psn_of(cack + offset)):set_generated()
  end
  add_entropy(item, tvb, 4)
  add_connection(item, tvb, 8)
  item:add(p["sack.cack_psn"], tvb(13, 3))
  add_cc(item, tvb(16, 1))
  item:add(p["sack.mpr"], tvb(17, 1))
  item:add(p["sack.mpr.psns"], tvb(17, 1), tvb(17, 1):uint() * 128):set_generated()
  item:add(p["sack.offset"], tvb(18, 2))
  local bitmap = item:add(p["sack.bitmap"], tvb(20, 8))
  bitmap:add(p["sack.base"], tvb(18, 2), psn_of(first)):set_generated()
  local received = set_bits(tvb(20, 8), first)
  bitmap:add(p["sack.received"], tvb(20, 8), in_words(received)):set_generated()
  local has = {}
  for _, psn in ipairs(received) do
    has[psn] = true
    bitmap:add(p["sack.psn"], tvb(20, 8), psn):set_generated()
  end
  if #received > 0 then -- what the bitmap covers below its highest, above the cumulative ack
    local highest = received[#received]
    for number = 0, 63 do
      local psn = psn_of(first + number)
      if psn == highest then break end
      local is_above = psn_of(psn - cack) > 0 and psn_of(psn - cack) < PSNS / 2
      if is_above and not has[psn] then
        bitmap:add(p["sack.missing"], tvb(20, 8), psn):set_generated()
      end
    end
  end
  add_timestamp(item, tvb, 28)
  item:add(p["sack.ooo"], tvb(30, 2), tvb(30, 2):bitfield(1, 15))
  add_flag(item, "sack.restore", tvb(32, 1), 0)
  item:add(p["sack.penalty"], tvb(32, 1), tvb(32, 1):bitfield(1, 7))
  item:add(p["sack.rcvd_units"], tvb(33, 3))
  item:add(p["sack.rcvd_bytes"], tvb(33, 3), tvb(33, 3):uint() * 256):set_generated()
  local what = is_answer and "answers probe " .. tvb(2, 2):uint() or "for PSN=" .. psn_of(cack + offset)
  local verdict = flags:bitfield(1, 2)
  return string.format("%s CACK=%d%s%s", what, cack,
    #received > 0 and " received " .. in_words(received) or "",
    verdict > 0 and " " .. VERDICTS[verdict] or "")
end }

HEADERS.nack = { 20, function(tvb, tree)
  local item = tree:add(p.nack, tvb(0, 20))
  item:add(p["nack.reason"], tvb(2, 1))
  item:add(p.vendor_info, tvb(3, 1))
  add_entropy(item, tvb, 4)
  add_connection(item, tvb, 8)
  item:add(p["nack.psn"], tvb(13, 3))
  add_cc(item, tvb(16, 1))
  add_timestamp(item, tvb, 18)
  return "of PSN=" .. tvb(13, 3):uint() .. " " .. (REASONS[tvb(2, 1):uint()] or "for an unknown reason")
end }
HEADERS.probe = { 16, function(tvb, tree)
  local item = tree:add(p.probe, tvb(0, 16))
  item:add(p.vendor_info, tvb(3, 1))
  item:add(p["probe.id"], tvb(4, 2))
  add_connection(item, tvb, 8)
  add_stamp(item, tvb, 12)
  return "id=" .. tvb(4, 2):uint()
end }
HEADERS.request = { 16, function(tvb, tree)
  local item, op = tree:add(p.request, tvb(0, 16)), tvb(1, 1):bitfield(6, 2)
  item:add(p["endpoint.op"], tvb(1, 1), op)
  item:add(p.vendor_info, tvb(3, 1))
  item:add(p["endpoint.ports"], tvb(4, 4))
  add_stamp(item, tvb, 12)
  return OPERATIONS[op] or "unknown operation"
end }
HEADERS.response = { 36, function(tvb, tree)
  local op = tvb(1, 1):bitfield(6 - mrc.prefs.op_shift, 2)
  local item = tree:add(p.response, tvb(0, 36))
  item:add(p["endpoint.op"], tvb(1, 1), op)
  add_timestamp(item, tvb, 28)
  return OPERATIONS[op] or "unknown operation"
end }

local BEHIND = {
  [0xD1] = { "aeth" }, [0xD8] = { "request" }, [0xD9] = { "response" },
  [0xDC] = { "sack" }, [0xDD] = { "nack" }, [0xDE] = { "probe" },
}
local function is_write(opcode) return opcode >= 0xC6 and opcode <= 0xCB end

local function headers_of(opcode, has_stamp)
  if not is_write(opcode) then return BEHIND[opcode] or {} end
  local names = { "meth" }
  if has_stamp then names[2] = "tseth" end
  names[#names + 1] = "reth"
  if opcode == 0xC9 or opcode == 0xCB then names[#names + 1] = "immdt" end
  return names
end

local function show_bth(tvb, tree)
  local bits, flags = tvb(1, 1), tvb(8, 1)
  local m, se = bits:bitfield(0, 1) == 1, bits:bitfield(1, 1) == 1
  if mrc.prefs.se_first then m, se = se, m end
  local item = tree:add(p.opcode, tvb(0, 1))
  if not OPCODES[tvb(0, 1):uint()] then item:add_proto_expert_info(unknown) end
  tree:add(p.migreq, bits, m)
  tree:add(p.se, bits, se)
  tree:add(p.padcnt, bits, bits:bitfield(2, 2))
  tree:add(p.tver, bits, bits:bitfield(4, 4))
  tree:add(p.p_key, tvb(2, 2))
  if tvb(4, 1):uint() ~= 0 then tree:add(p.reserved, tvb(4, 1)) end
  tree:add(p.destqp, tvb(5, 3))
  add_flag(tree, "ackreq", flags, 0)
  add_flag(tree, "rtx", flags, 2)
  add_flag(tree, "ts", flags, 3)
  tree:add(p.psn, tvb(9, 3))
  if tvb(0, 1):uint() == 0xD8 or tvb(0, 1):uint() == 0xD9 then tree:add(p["endpoint.id"], tvb(10, 2)) end
end

-- The entropy that this packet itself carries: its way.
local function show_ev(pinfo, tree)
  local label = last(label_field)
  local high, low = label and label.value % 65536 or 0, pinfo.src_port
  local whole = high * 65536 + low
  if label and mrc.prefs.label_low then whole = low * 65536 + high end
  local item = tree:add(p.ev, whole):set_generated()
  if label then item:add(p["ev.label"], high):set_generated() end
  item:add(p["ev.port"], low):set_generated()
  return whole
end

local function show_mrc(tvb, pinfo, root, cut)
  local tree = root:add(mrc, tvb())
  pinfo.cols.protocol = "MRC"
  if tvb:captured_len() < BTH then
    tree:add_proto_expert_info(short)
    return
  end
  local opcode = tvb(0, 1):uint()
  show_bth(tvb, tree)
  local ev = show_ev(pinfo, tree)
  local words = { OPCODES[opcode] or string.format("opcode 0x%02x", opcode) }
  if is_write(opcode) then words[#words + 1] = "PSN=" .. tvb(9, 3):uint() end
  local at = BTH
  local stop = tvb:captured_len() - (cut > 0 and 0 or math.max(0, ICRC - (tvb:reported_len() - tvb:captured_len())))
  for _, name in ipairs(headers_of(opcode, tvb(8, 1):bitfield(3, 1) == 1)) do
    local size, show = HEADERS[name][1], HEADERS[name][2]
    if at + size > stop then
      if cut == 0 and tvb:reported_len() == tvb:captured_len() then tree:add_proto_expert_info(short) end
      at = stop
      break
    end
    words[#words + 1] = show(tvb(at, size):tvb(), tree)
    at = at + size
  end
  if at < stop and is_write(opcode) then
    local pad = cut > 0 and 0 or tvb(1, 1):bitfield(2, 2)
    local size = math.max(0, stop - at - pad)
    if size > 0 then tree:add(p.payload, tvb(at, size)) end
    tree:add(p.payload_length, size):set_generated()
    words[#words + 1] = size .. " bytes"
  end
  if tvb(8, 1):bitfield(2, 1) == 1 then words[#words + 1] = "rtx" end
  words[#words + 1] = string.format("EV=0x%08x", ev)
  pinfo.cols.info = table.concat(words, " ")
end

function mrc.dissector(tvb, pinfo, root)
  show_mrc(tvb, pinfo, root, bytes_cut(tvb, pinfo))
end

---------------------------------------------------------------------------------------------
-- The port: ours first, which hands RoCE on

local table_of_ports = DissectorTable.get("udp.port")
local built_in -- what RoCE goes on to

function fabric.dissector(tvb, pinfo, root)
  local size = tvb:captured_len()
  if size < 1 then return end
  local opcode, cut = tvb(0, 1):uint(), bytes_cut(tvb, pinfo)
  if opcode >= 0xC0 then
    show_mrc(tvb, pinfo, root, cut)
  elseif built_in then -- what it calls malformed, often a guess at the payload, ends it but not us
    pcall(built_in.call, built_in, tvb, pinfo, root)
  end
  local tree = root:add(fabric, tvb())
  if size >= BTH and opcode < 0xC0 then
    tree:add(f.fecn, tvb(4, 1), tvb(4, 1):bitfield(0, 1) == 1)
    tree:add(f.becn, tvb(4, 1), tvb(4, 1):bitfield(1, 1) == 1)
    if opcode == CNP then show_cnp(tvb, pinfo, tree) end
  end
  if cut > 0 then
    show_trimmed(tvb, tree, cut)
    pinfo.cols.info:append(" [trimmed, " .. cut .. " bytes cut]")
  end
  show_icrc(tvb, pinfo, tree, cut)
end

-- Take the ports. Wherever a preference of the built-in dissector is set it takes its port back:
-- so this is done again with every file, and then it is mostly our own that is found there. Texts
-- of dissectors are compared with each other only: what they are differs between versions.
local function take_ports()
  local there = table_of_ports:get_dissector(ROCE_PORT)
  if there and not built_in and tostring(there) ~= tostring(fabric.dissector) then built_in = there end
  table_of_ports:add(ROCE_PORT, fabric)
  table_of_ports:add(MRC_PORT, fabric)
end

fabric.init = take_ports
take_ports()
