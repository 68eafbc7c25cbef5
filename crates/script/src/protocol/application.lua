local ipairs, type, tostring, concat = ipairs, type, tostring, table.concat
local byte, sub, find, match, lower = string.byte, string.sub, string.find, string.match, string.lower
local unpack = string.unpack
local to_packet, copy = bytes.to_packet, bytes.copy

-- The octets of a stream so far; a string is taken as it is.
local function text_of(stream) return type(stream) == "string" and stream or tostring(stream:octets()) end

register_dynamic_protbuf {
  name = "packet_tftp",
  about = "TFTP (RFC 1350): number is the block of DATA and ACK, and the code of ERROR; requests begin with their file "
    .. "name there, which ends with a zero.",
  payload_field = "data",
  protocol_fields = {
    { "opcode", 0, 16, "int" },
    { "number", 16, 16, "int" },
    { "filename", 16, 0, "text" },
    { "data", 32, 0 },
  },
  get_field_changes = function(seg)
    local name = 0
    if seg[0] == 0 and (seg[1] == 1 or seg[1] == 2) then
      name = (tostring(seg):find("\0", 3, true) or 3) - 3
    end
    return { 0, 0, 0, 0 }, { 0, 0, name * 8, 0 }
  end,
}

-- Fields that lie anywhere: those of `names` that `found` has, each {first, last} in octets from 1 on as string.find
-- tells them. The others are empty.
local function text_fields(names, found)
  local offsets, lengths = {}, {}
  for at, name in ipairs(names) do
    local place = found[name]
    offsets[at] = place and (place[1] - 1) * 8 or 0
    lengths[at] = place and (place[2] - place[1] + 1) * 8 or 0
  end
  return offsets, lengths
end

local function fields_of(names, kinds)
  local fields = {}
  for at, name in ipairs(names) do fields[at] = { name, 0, 0, kinds and kinds[name] or "text" } end
  return fields
end

local http_fields = {
  "method", "uri", "version", "status", "reason", "host", "user_agent", "content_length", "content_type", "connection",
  "headers", "body",
}

register_dynamic_protbuf {
  name = "packet_http",
  about = "Head of an HTTP/1 request or response (RFC 9112), as far as it is there. method and uri are those of a request, "
    .. "status and reason those of a response; a header field that is not there is empty. http.host(stream) tells which "
    .. "host the first request of a stream is for, however it is written.",
  payload_field = "body",
  protocol_fields = fields_of(http_fields, { body = "raw" }),
  has_protocol = true,
  get_field_changes = function(seg)
    local text, found = tostring(seg), {}
    local function note(name, first, last)
      if first then found[name] = { first, last } end
    end
    local line_end = text:find("\r\n", 1, true)
    local line = text:sub(1, (line_end or #text + 1) - 1)
    local method, uri = line:match("^(%u+) (%S+) HTTP/1%.%d$")
    if method then
      note("method", 1, #method)
      note("uri", #method + 2, #method + 1 + #uri)
      note("version", #line - 7, #line)
    elseif line:match("^HTTP/1%.%d %d%d%d") then
      note("version", 1, 8)
      note("status", 10, 12)
      if #line > 13 then note("reason", 14, #line) end
    else
      line_end = nil -- not HTTP: everything is empty
    end
    local at = line_end and line_end + 2
    local first = at
    while at do
      local stop = text:find("\r\n", at, true)
      if stop == at then
        if at > first then note("headers", first, at - 3) end
        note("body", at + 2, #text)
        break
      end
      local last = (stop or #text + 1) - 1
      local colon = text:find(":", at, true)
      if colon and colon < last then
        local name = text:sub(at, colon - 1):lower():gsub("-", "_")
        if name == "host" or name == "user_agent" or name == "content_length" or name == "content_type"
          or name == "connection" then
          local value = text:find("[^ \t]", colon + 1)
          if value and value <= last and not found[name] then note(name, value, last) end
        end
      end
      if not stop then note("headers", first, #text) end
      at = stop and stop + 2
    end
    if not found.body then found.body = { #text + 1, #text } end
    return text_fields(http_fields, found)
  end,
}

http = {}

-- The authority of a URI, without user and port, in lower case.
local function host_of(authority)
  local host = authority:match("([^@]*)$"):lower()
  return (host:match("^%[.*%]") or host:match("^[^:]*")):gsub("%.$", "")
end

-- The host that the first request of a stream is for, in lower case and without the port: nil while its head is not all
-- there, an empty string where it says none, false where it is none of HTTP/1, or one that servers may read in different
-- ways (RFC 9112 §2.2, §3.2, §5).
function http.host(stream)
  local text = text_of(stream)
  local at, method, target, host = find(text, "[^\r\n]"), nil, nil, nil
  while at do
    local stop = find(text, "\n", at, true)
    if not stop then
      -- The name of a method is a token.
      if not method and not match(text, "^[%w!#$%%&'*+.^_`|~-]", at) then return false end
      return nil
    end
    local line = match(sub(text, at, stop - 1), "^(.-)\r?$")
    if not method then
      method, target = match(line, "^(%S+)[ \t]+(%S+)[ \t]+HTTP/1%.%d[ \t]*$")
      if not method then return false end
    elseif line == "" then
      local authority = method == "CONNECT" and target or match(target, "^%a[%w+.-]*://([^/?#]*)")
      return (host_of(authority or host or ""))
    else
      local name, value = match(line, "^([^%s:]+):[ \t]*(.-)[ \t]*$")
      if not name or name:lower() == "host" and host then return false end
      if name:lower() == "host" then host = value end
    end
    at = stop + 1
  end
  return nil
end

register_dynamic_protbuf {
  name = "packet_dns",
  about = "DNS (RFC 1035). qname is the first question's name as it is sent, labels with their lengths, 255 octets at most; "
    .. "dns.name(view) gives it with dots. dns.messages(stream) gives the messages of a stream of TCP.",
  payload_field = "answers",
  protocol_fields = {
    { "id", 0, 16, "int" },
    { "qr", 16, 1, "bool" },
    { "opcode", 17, 4, "int" },
    { "aa", 21, 1, "bool" },
    { "tc", 22, 1, "bool" },
    { "rd", 23, 1, "bool" },
    { "ra", 24, 1, "bool" },
    { "rcode", 28, 4, "int" },
    { "qdcount", 32, 16, "int" },
    { "ancount", 48, 16, "int" },
    { "nscount", 64, 16, "int" },
    { "arcount", 80, 16, "int" },
    { "qname", 96, 0, "text" },
    { "qtype", 96, 0, "int" },
    { "qclass", 96, 0, "int" },
    { "answers", 96, 0 },
  },
  get_field_changes = { question = "qname" },
}

dns = {}

-- The name of the first question, in lower case and with dots; nil if there is none that can be read.
function dns.name(view)
  local raw, labels, at = view:qname():get(), {}, 1
  while at < #raw do
    local length = byte(raw, at)
    labels[#labels + 1] = sub(raw, at + 1, at + length)
    at = at + 1 + length
  end
  if #raw == 0 then return nil end
  return lower(concat(labels, "."))
end

-- The messages of DNS over TCP that are all there, as a list of views: each stands behind its length (RFC 1035 §4.2.2).
function dns.messages(stream)
  local text, views, at = text_of(stream), {}, 1
  while at + 1 <= #text do
    local stop = at + 1 + unpack(">I2", text, at)
    if stop > #text then break end
    views[#views + 1] = to_packet(copy(sub(text, at + 2, stop)), packet_dns)
    at = stop + 1
  end
  return views
end

register_dynamic_protbuf {
  name = "packet_tls",
  about = "A TLS record (RFC 8446 §5.1); server_name is the name that a ClientHello asks for (RFC 6066 §3), empty where "
    .. "there is none in these octets. tls.server_name(stream) tells that of a stream, whatever it is split over.",
  payload_field = "data",
  protocol_fields = {
    { "type", 0, 8, "int" },
    { "version", 8, 16, "int" },
    { "length", 24, 16, "int" },
    { "handshake", 40, 8, "int" },
    { "server_name", 0, 0, "text" },
    { "data", 40, 0 },
  },
  get_field_changes = function(seg)
    local offsets, lengths = { 0, 0, 0, 0, 0, 0 }, { 0, 0, 0, 0, 0, 0 }
    local size = #seg
    local function word(at) return at + 1 < size and seg[at] << 8 | seg[at + 1] or nil end
    if seg[0] ~= 22 or seg[5] ~= 1 then return offsets, lengths end
    -- Behind record and handshake headers, version and random: session, ciphers, compression, then extensions.
    local at = 43
    if at >= size then return offsets, lengths end
    at = at + 1 + seg[at]
    local ciphers = word(at)
    if not ciphers then return offsets, lengths end
    at = at + 2 + ciphers
    if at >= size then return offsets, lengths end
    at = at + 1 + seg[at] + 2
    while true do
      local kind, length = word(at), word(at + 2)
      if not length then return offsets, lengths end
      if kind == 0 then
        local name = word(at + 7)
        if name and at + 9 + name <= size and seg[at + 6] == 0 then
          offsets[5], lengths[5] = (at + 9) * 8, name * 8
        end
        return offsets, lengths
      end
      at = at + 4 + length
    end
  end,
}

tls = {}

local CHANGE_CIPHER_SPEC, ALERT, HANDSHAKE, CLIENT_HELLO = 20, 21, 22, 1
-- Octets of a record, at most: with what old versions allow for compression and encryption (RFC 5246 §6.2.3).
local LONGEST_RECORD = 18432

-- The ClientHello that a stream begins with, from its version on, put together from the records that it is split over (RFC
-- 8446 §5.1): nil while it is not all there, false where there is something else. Alerts and changes of cipher between
-- them, which servers may pass over, are passed over, and so is the version of a record, which they are to ignore.
local function client_hello(text)
  local parts, have, head, at = {}, 0, "", 1
  while at <= #text do
    local kind = byte(text, at)
    if kind < CHANGE_CIPHER_SPEC or kind > HANDSHAKE then return false end
    if at + 4 > #text then return nil end
    local length = unpack(">I2", text, at + 3)
    if length > LONGEST_RECORD then return false end
    if kind == HANDSHAKE and length > 0 then
      local part = sub(text, at + 5, at + 4 + length)
      parts[#parts + 1], have, head = part, have + #part, head .. sub(part, 1, 4 - #head)
      if #head > 0 and byte(head) ~= CLIENT_HELLO then return false end
      local whole = #head == 4 and 4 + unpack(">I3", head, 2)
      if whole and have >= whole then return sub(concat(parts), 5, whole) end
    end
    at = at + 5 + length
  end
  return nil
end

-- The name that the ClientHello of a stream of TLS asks for (RFC 6066 §3), in lower case: nil while the message is not all
-- there, an empty string where it asks for none, false where the stream begins with something else. A message that is not
-- well-formed, which servers refuse, asks for none.
function tls.server_name(stream)
  local hello = client_hello(text_of(stream))
  if not hello then return hello end
  -- Version and random; session, ciphers, compression with their lengths; extensions.
  local at = 35
  at = at + 1 + (byte(hello, at) or #hello)
  if at + 1 > #hello then return "" end
  at = at + 2 + unpack(">I2", hello, at)
  at = at + 1 + (byte(hello, at) or #hello) + 2
  while at + 3 <= #hello do
    local kind, length = unpack(">I2I2", hello, at)
    if kind == 0 then
      local names, place = sub(hello, at + 6, at + 3 + length), 1
      while place + 2 <= #names do
        local of, size = unpack(">BI2", names, place)
        if of == 0 then return (sub(names, place + 3, place + 2 + size):lower():gsub("%.$", "")) end
        place = place + 3 + size
      end
      return ""
    end
    at = at + 4 + length
  end
  return ""
end
