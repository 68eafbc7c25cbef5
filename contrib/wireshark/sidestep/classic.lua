-- The classic profile, without keys: what its packets show of themselves (docs/classic.md, sections 4 and 6).

local directory = ... -- where these files are
if not directory then
    return -- Wireshark runs every file that it finds among its plugins: this one is for sidestep.lua.
end

local CIPHERS = { [1] = "AES-256-CBC", [2] = "AES-128-CBC" }
local ENCRYPTION, NEW_KEY = 219, 204

local f = {
    flag = ProtoField.bool("sidestep_classic.flag", "Flag of the key exchange", 16, nil, 0x8000),
    port = ProtoField.uint16("sidestep_classic.port", "Port of the sender", base.DEC, nil, 0x7fff),
    cipher = ProtoField.uint8("sidestep_classic.cipher", "Cipher", base.DEC, CIPHERS, 0xf0),
    padding = ProtoField.uint8("sidestep_classic.padding", "Bytes of padding", base.DEC, nil, 0x0f),
    payload = ProtoField.bytes("sidestep_classic.ciphertext", "Inner packet, encrypted"),
    header = ProtoField.bytes("sidestep_classic.inner_header", "First 8 bytes of the inner header"),
    length = ProtoField.uint16("sidestep_classic.inner_length", "Inner payload length"),
    next_header = ProtoField.uint8("sidestep_classic.inner_next_header", "Inner next header"),
    hop_limit = ProtoField.uint8("sidestep_classic.inner_hop_limit", "Inner hop limit"),
    offer = ProtoField.none("sidestep_classic.offer", "Offer of a new session key"),
    offer_cipher = ProtoField.uint8("sidestep_classic.offer.cipher", "Cipher", base.DEC, CIPHERS),
    change = ProtoField.absolute_time("sidestep_classic.offer.change", "Change time", base.UTC),
    key = ProtoField.bytes("sidestep_classic.offer.key", "Session key, encrypted"),
}
local function note(name, text, group, severity)
    return ProtoExpert.new("sidestep_classic." .. name, text, expert.group[group], expert.severity[severity])
end
local e = {
    option = note("malformed_option", "Malformed option", "MALFORMED", "WARN"),
    blocks = note("wrong_length", "No whole number of cipher blocks", "MALFORMED", "WARN"),
    addresses = note("addresses", "The true addresses are not known, so checksums inside look wrong", "UNDECODED", "CHAT"),
}

local proto = Proto("sidestep_classic", "Sidestep classic profile (MT6D)")
proto.fields, proto.experts = f, e
proto.prefs.enabled = Pref.bool("Look for the classic profile", true, "Without keys, by its options and lengths")

local destination_options = Field.new("ipv6.dstopts")
local source_port, udp_length = Field.new("udp.srcport"), Field.new("udp.length")
local protocols = DissectorTable.get("ip.proto")

-- The profile's options in the Destination Options header before the datagram: ranges of their data, by type. Nil if
-- there are none.
local function options()
    local all = { destination_options() }
    local header = all[#all] and all[#all].range
    if not header then
        return nil
    end
    local found, at = nil, 2
    while at + 2 <= header:len() do
        local type = header(at, 1):uint()
        if type == 0 then
            at = at + 1
        else
            local length = header(at + 1, 1):uint()
            if at + 2 + length > header:len() then
                break
            end
            if (type == ENCRYPTION or type == NEW_KEY) and length > 0 then
                found = found or {}
                found[type] = header(at + 2, length)
            end
            at = at + 2 + length
        end
    end
    return found
end

-- The tree of a packet, with what all packets have.
local function root_of(tree, range, what)
    local root = tree:add(proto, range, "Sidestep classic profile (MT6D), " .. what)
    local ports = { source_port() }
    local port = ports[#ports] and ports[#ports].range
    if port then
        root:add(f.flag, port)
        root:add(f.port, port)
    end
    return root
end

local function show_offer(root, data)
    if data:len() ~= 69 then
        return root:add_proto_expert_info(e.option)
    end
    local offer = root:add(f.offer, data)
    offer:add(f.offer_cipher, data(0, 1))
    offer:add(f.change, data(1, 4))
    offer:add(f.key, data(5, 64))
end

local function show_encrypted(tvb, pinfo, tree, found)
    local encryption = found[ENCRYPTION]
    local root = root_of(tree, tvb(), "encrypted")
    pinfo.cols.protocol = "Sidestep classic"
    pinfo.cols.info = "encrypted"
    if encryption:len() == 1 then
        root:add(f.cipher, encryption)
        root:add(f.padding, encryption)
    else
        root:add_proto_expert_info(e.option)
    end
    if found[NEW_KEY] then
        show_offer(root, found[NEW_KEY])
    end
    root:add(f.payload, tvb())
    if tvb:reported_len() % 16 ~= 0 then
        root:add_proto_expert_info(e.blocks)
    end
end

local function show_plain(tvb, pinfo, tree, found)
    local root = root_of(tree, tvb(), "not encrypted")
    root:add(f.header, tvb(0, 8))
    root:add(f.length, tvb(4, 2))
    root:add(f.next_header, tvb(6, 1))
    root:add(f.hop_limit, tvb(7, 1))
    root:add_proto_expert_info(e.addresses)
    if found then
        show_offer(root, found[NEW_KEY])
    end
    pinfo.cols.protocol = "Sidestep classic"
    pinfo.cols.info = "not encrypted: "
    pinfo.cols.info:fence()
    if tvb:len() > 8 then
        -- What finds it malformed shows that, and then fails.
        pcall(protocols.try, protocols, tvb(6, 1):uint(), tvb(8):tvb(), pinfo, tree)
    end
end

-- What follows UDP, if it is of the profile.
local function look(tvb, pinfo, tree)
    if not proto.prefs.enabled or tvb:len() < 8 then
        return false
    end
    local found = options()
    if found and found[ENCRYPTION] then
        show_encrypted(tvb, pinfo, tree, found)
        return true
    end
    -- The first bytes of an IPv6 header, which says just how long the rest is.
    local version = tvb(0, 1):uint()
    if version < 0x60 or version > 0x6f or tvb(4, 2):uint() ~= tvb:reported_len() - 8 then
        return false
    end
    show_plain(tvb, pinfo, tree, found and found[NEW_KEY] and found)
    return true
end

-- Packets of the key exchange have no payload, so no heuristic sees them.
function proto.dissector(tvb, pinfo, tree)
    if not proto.prefs.enabled then
        return
    end
    local lengths = { udp_length() }
    if not lengths[1] or lengths[#lengths].value ~= 8 then
        return
    end
    local found = options()
    if found and found[NEW_KEY] then
        pinfo.cols.protocol = "Sidestep classic"
        pinfo.cols.info = "offer of a new session key"
        show_offer(root_of(tree, found[NEW_KEY], "key exchange"), found[NEW_KEY])
    end
end

local classic = {}

function classic.register()
    proto:register_heuristic("udp", look)
    register_postdissector(proto)
end

return classic
