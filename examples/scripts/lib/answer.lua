-- Packets that answer others: from where a packet went to where it came from.

local answer = {}

-- The octets of an address field: of an ip view, 4 or 16.
local function address(ip, name)
  local is_ip6 = ip:version():get() == 6
  local first = name == "daddr" and (is_ip6 and 24 or 16) or (is_ip6 and 8 or 12)
  return tostring(ip:raw(first, is_ip6 and 16 or 4):get())
end

-- A packet of IP, checksums and all, from `from` to `to` (fields of `ip`), with a transport header and payload.
local function packet(ip, from, to, protocol, payload)
  if ip:version():get() == 6 then
    local header = string.pack(">I4I2BB", 0x60000000, #payload, protocol, 64)
    local octets = bytes.copy(header .. address(ip, from) .. address(ip, to) .. payload)
    nf.fix_checksums(octets, packet_ip6)
    return octets
  end
  local header = string.pack(">BBI2I2I2BBI2", 0x45, 0, 20 + #payload, 0, 0x4000, 64, protocol, 0)
  local octets = bytes.copy(header .. address(ip, from) .. address(ip, to) .. payload)
  nf.fix_checksums(octets, packet_ip)
  return octets
end

-- The answer to a packet of UDP, of the IP header `ip`.
function answer.udp(ip, sport, dport, payload)
  return packet(ip, "daddr", "saddr", 17, string.pack(">I2I2I2I2", sport, dport, 8 + #payload, 0) .. payload)
end

local function segment(sport, dport, seq, ack, flags, window, payload)
  return string.pack(">I2I2I4I4BBI2I2I2", sport, dport, seq & 0xffffffff, ack & 0xffffffff, 0x50, flags, window, 0, 0)
    .. (payload or "")
end

-- A segment of TCP back to where `ip` came from; the flags are those of the header's octet.
function answer.tcp(ip, ...)
  return packet(ip, "daddr", "saddr", 6, segment(...))
end

-- A segment of TCP to where `ip` goes, in the sender's name.
function answer.onward(ip, ...)
  return packet(ip, "saddr", "daddr", 6, segment(...))
end

return answer
