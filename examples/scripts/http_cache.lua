-- A cache of HTTP/1, after section 4.2.2 of the thesis: what went by once is answered from here, with a sender of TCP.
--
-- It belongs where both directions pass. The handshake goes through to the server. A GET for what is known ends here: the
-- server's end of the connection is reset, and the answer is sent in its name, with the sequence numbers that it had
-- chosen, as fast as the client acknowledges (slow start, RFC 5681), again after three equal acknowledgments or a second
-- without one (RFC 6298), and with FIN behind it. Any other request goes on, and the answer to a GET is kept.
--
-- Answers of up to LARGEST octets are kept, the 32 MB of the thesis among them; beyond TOTAL those go first that were
-- fetched longest ago.
--
-- Not cached: other statuses than 200; answers without Content-Length, with Vary, Set-Cookie or Cache-Control no-store,
-- private, no-cache or max-age=0; what was asked for with Authorization, Cookie, Range, conditions, or Cache-Control; heads
-- that do not fit into a packet. SYNs lose their timestamps (RFC 7323): segments made here have none.

LARGEST = 33 << 20  -- octets of an answer
TOTAL = 64 << 20    -- octets of all
LIFETIME = 60000    -- milliseconds, where max-age says nothing else
CONNECTIONS = 1024  -- at a time, in each thread
local PORT = 80     -- as a local variable that nothing assigns to the kernel knows it: see scripting.md, What compiles
RETRANSMIT = 1000   -- milliseconds, twice as many each time
WINDOW = 1 << 20    -- octets that are under way at most
HELD = 4 << 20      -- octets of answers that wait for others, which were lost, in each thread

local answer, blocks, lru = require "lib.answer", require "lib.blocks", require "lib.lru"

local FIN, RST, PSH, ACK = 1, 4, 8, 16
local objects, learning, held, serving
local answered = nf.counter "http_cache answered"
-- What a connection of MSS and window scale, from its handshake.
local flows = nf.flows { name = "http_cache" }
-- Octets that have arrived, by client, port and first sequence number: deferred work sees no other state.
local arrived = nf.table {
  name = "http_cache arrived", key = { "ipv6", "int", "int" }, expires = 120000, when_full = "oldest",
}

local function reset()
  objects, learning, serving = blocks.new("http_cache", TOTAL), lru.new(CONNECTIONS), lru.new(CONNECTIONS)
  held = lru.new(HELD)
end
reset()

local function mapped(address) return address:find(":", 1, true) and address or "::ffff:" .. address end

local function distance(from, to) return to - from & 0xffffffff end

-- The sender -----------------------------------------------------------------------------------------------------------

-- One segment of the answer `id` of `size` octets, from `at` on; where it ends. `send` is given flags and payload.
local function segment(id, size, at, mss, send)
  local payload = objects:read(id, at, mss)
  if not payload then
    send(RST, "") -- it was forgotten meanwhile
    return size
  end
  send(at + #payload == size and FIN | PSH | ACK or ACK, payload)
  return at + #payload
end

local function send_segment(p, ip, transfer, at)
  return segment(transfer.id, transfer.size, at, transfer.mss, function(flags, payload)
    nf.create_packet(p, answer.tcp(ip, PORT, transfer.port, transfer.first + at, transfer.expects, flags, 65535, payload))
  end)
end

-- What again() has to know: the answer's number and octets, octets that had arrived, octets of a segment, how often one
-- was sent again; and a segment's headers.
local STATE = ">I8I8I8I2I2s2"

local function look_later(delay, ...)
  pcall(nf.schedule, nil, "again", 0, delay, bytes.copy(STATE:pack(...)), packet_raw)
end

-- Called in a state of its own: sends the first segment that has not arrived again, if none has since the last look.
function again(_, state)
  local id, size, before, mss, times, headers = STATE:unpack(tostring(state:get()))
  local ip = bytes.to_packet(bytes.copy(headers), headers:byte() >> 4 == 6 and packet_ip6 or packet_ip)
  local tcp = ip:data(packet_tcp)
  local port, first = tcp:dport():get(), tcp:seq():get()
  local at = arrived:get(mapped(ip:daddr():get()), port, first)
  if not at or at > size or times == 6 then return end
  times = at == before and times + 1 or 0
  if times > 0 then
    segment(id, size, at, mss, function(flags, payload)
      nf.create_packet(nil, answer.onward(ip, PORT, port, first + at, tcp:ack_seq():get(), flags, 65535, payload))
    end)
  end
  look_later(RETRANSMIT << times, id, size, at, mss, times, headers)
end

local function send_more(p, ip, transfer)
  local limit = math.min(transfer.window, transfer.congestion)
  while transfer.sent < transfer.size and transfer.sent - transfer.arrived < limit do
    transfer.sent = send_segment(p, ip, transfer, transfer.sent)
  end
end

-- An acknowledgment of the client's.
local function acknowledged(p, ip, tcp, transfer, client)
  local all = transfer.size + 1 -- FIN counts
  local at = distance(transfer.first, tcp:ack_seq():get())
  if tcp:rst():get() then
    arrived:delete(mapped(ip:saddr():get()), transfer.port, transfer.first)
    return serving:delete(client)
  end
  if at > all then return end -- from before the request
  transfer.window = tcp:window():get() << transfer.scale
  if at > transfer.arrived then
    transfer.congestion = math.min(transfer.congestion + at - transfer.arrived, WINDOW)
    transfer.arrived, transfer.equal = at, 0
    arrived:set(mapped(ip:saddr():get()), transfer.port, transfer.first, at)
    -- Of several segments that were lost the next one (RFC 6582).
    if at < transfer.recover then send_segment(p, ip, transfer, at) end
  elseif at < transfer.sent and not tcp:fin():get() then
    transfer.equal = transfer.equal + 1
    if transfer.equal == 3 then
      transfer.congestion = math.max(transfer.congestion // 2, 2 * transfer.mss)
      transfer.recover = transfer.sent
      send_segment(p, ip, transfer, at)
    end
  end
  send_more(p, ip, transfer)
  if tcp:fin():get() then
    local sequence = transfer.first + (at == all and all or transfer.sent)
    nf.create_packet(p, answer.tcp(ip, PORT, transfer.port, sequence, tcp:seq():get() + 1, ACK, 65535))
    if at == all then serving:delete(client) end
  end
end

-- Requests and answers -------------------------------------------------------------------------------------------------

-- Whether one of the header fields is there.
local function has(head, ...)
  head = head:lower()
  for _, name in ipairs { ... } do
    if head:find("\r\n" .. name, 1, true) then return true end
  end
  return false
end

local function request(p, ip, tcp, text, client)
  learning:delete(client)
  local http = tcp:data(packet_http)
  if not http or http:method():get() ~= "GET" or text:sub(-4) ~= "\r\n\r\n"
    or has(text, "authorization:", "cookie:", "range:", "if-", "cache-control:", "content-length:") then
    return XT_CONTINUE
  end
  local key = ip:daddr():get() .. " " .. http:host():get():lower() .. " " .. http:uri():get()
  local id, size = objects:find(key)
  local first = tcp:ack_seq():get()
  if not id then
    learning:put(client, { key = key, first = first, size = 0 }, 1)
    return XT_CONTINUE
  end
  local flow = p:flow(flows)
  local mss = flow and flow.mss > 0 and flow.mss or 536
  local scale = flow and math.max(flow.scale - 1, 0) or 0
  local transfer = {
    id = id, size = size, first = first, expects = tcp:seq():get() + #text, port = tcp:sport():get(), mss = mss,
    scale = scale, window = tcp:window():get() << scale, congestion = 10 * mss, sent = 0, arrived = 0, equal = 0,
    recover = 0,
  }
  serving:put(client, transfer, 1)
  arrived:set(mapped(ip:saddr():get()), transfer.port, first, 0)
  answered:add()
  nf.create_packet(p, answer.onward(ip, transfer.port, PORT, tcp:seq():get(), 0, RST, 0))
  send_more(p, ip, transfer)
  local headers = answer.tcp(ip, PORT, transfer.port, first, transfer.expects, ACK, 65535)
  look_later(RETRANSMIT, id, size, 0, mss, 0, tostring(headers))
  return NF_DROP
end

-- How long an answer with this head is, with the head, and for how many milliseconds it is good; nil if it is not kept.
local function worth_keeping(head, http)
  local length = tonumber(http:content_length():get())
  if http:status():get() ~= "200" or not length or has(head, "vary:", "set-cookie:", "transfer-encoding:") then
    return nil
  end
  local control = head:lower():match("\r\ncache%-control:([^\r]*)") or ""
  if control:find("no-store", 1, true) or control:find("no-cache", 1, true) or control:find("private", 1, true) then
    return nil
  end
  local age = tonumber(control:match("max%-age=(%d+)"))
  local good_for = age and age * 1000 or LIFETIME
  if good_for == 0 or #head + length > LARGEST then return nil end
  return #head + length, good_for
end

-- A part of an answer, from the server.
local function response(tcp, text, client)
  local answer_of = learning:get(client)
  if not answer_of or #text == 0 then return end
  local at = distance(answer_of.first, tcp:seq():get())
  local from = distance(at, answer_of.size)
  if from >= 0x80000000 then
    -- One is missing. It comes again, those that follow it do not.
    held:put(client .. " " .. answer_of.first .. " " .. at, text, #text)
    return
  end
  if from >= #text then return end -- it came again
  text = text:sub(from + 1)
  answer_of.size = answer_of.size + #text
  if not answer_of.file then
    local http = tcp:data(packet_http)
    local stop = http and select(2, text:find("\r\n\r\n", 1, true))
    local head = stop and text:sub(1, stop)
    if stop then answer_of.length, answer_of.good_for = worth_keeping(head, http) end
    if not answer_of.length then return learning:delete(client) end
    answer_of.file = objects:begin()
    -- The connection ends behind it.
    head = head:gsub("\r\n[Cc]onnection:[^\r]*", ""):sub(1, -3) .. "Connection: close\r\n\r\n"
    objects:write(answer_of.file, head)
    text = text:sub(stop + 1)
  end
  objects:write(answer_of.file, text)
  while true do
    local place = client .. " " .. answer_of.first .. " " .. answer_of.size
    local next = held:get(place)
    if not next then break end
    objects:write(answer_of.file, next)
    answer_of.size = answer_of.size + #next
    held:delete(place)
  end
  if answer_of.size < answer_of.length then return end
  learning:delete(client)
  if answer_of.size > answer_of.length then return end
  objects:finish(answer_of.file, answer_of.key, nf.get_time() + answer_of.good_for)
end

-- Notes what a SYN says, and takes its timestamps out.
local function handshake(p, tcp, is_answer)
  local flow = p:flow(flows)
  local options = tcp:options():get()
  local at, scale = 0, 0
  while at < #options do
    local kind = options[at]
    local length = kind > 1 and at + 1 < #options and options[at + 1] or 1
    if kind == 0 or length < 1 or at + length > #options then break end
    if kind == 2 and length == 4 and flow and not is_answer then flow.mss = options[at + 2] << 8 | options[at + 3] end
    if kind == 3 and length == 3 then scale = math.min(options[at + 2], 14) + 1 end
    if kind == 8 then
      for place = at, at + length - 1 do options[place] = 1 end
    end
    at = at + length
  end
  -- A window is scaled only if both say so.
  if flow and (not is_answer or scale == 0) then flow.scale = scale end
end

function process_packet(p)
  local eth = p:data(packet_eth)
  local ip = eth and (eth:data(packet_ip6) or eth:data(packet_ip))
  local tcp = ip and ip:data(packet_tcp)
  if not tcp then return XT_CONTINUE end
  local from_client = tcp:dport():get() == PORT
  if not from_client and tcp:sport():get() ~= PORT then return XT_CONTINUE end
  local client
  if from_client then
    client = ip:saddr():get() .. " " .. tcp:sport():get() .. " " .. ip:daddr():get()
  else
    client = ip:daddr():get() .. " " .. tcp:dport():get() .. " " .. ip:saddr():get()
  end
  if tcp:syn():get() then
    if from_client then
      serving:delete(client)
      learning:delete(client)
    end
    handshake(p, tcp, not from_client)
    return XT_CONTINUE
  end
  if from_client then
    local transfer = serving:get(client)
    if transfer then
      acknowledged(p, ip, tcp, transfer, client)
      return NF_DROP
    end
    local text = tostring(tcp:data():get())
    if #text > 0 then return request(p, ip, tcp, text, client) end
  else
    if serving:get(client) then return NF_DROP end
    if learning:get(client) then response(tcp, tostring(tcp:data():get()), client) end
  end
  return XT_CONTINUE
end

-- Tests ----------------------------------------------------------------------------------------------------------------

local test = require "test"
local client, server = "2001:db8::c", "2001:db8::5"
local START, REQUEST = 0xfffffff0, 5000 -- sequence numbers: the server's begin again within the first segment
local GET = "GET /file HTTP/1.1\r\nHost: Example.org\r\n\r\n"

local function numbered(packet, seq, ack)
  local tcp = packet:data(packet_eth):data(packet_ip6):data(packet_tcp)
  tcp:seq():set(seq & 0xffffffff)
  tcp:ack_seq():set(ack & 0xffffffff)
  return packet
end

local function from_client(flags, payload, seq, ack)
  return numbered(test.tcp(client, 2000, server, 80, flags, payload), seq or REQUEST, ack or START)
end

local function from_server(payload, at)
  return numbered(test.tcp(server, 80, client, 2000, "ack", payload), START + (at or 0), REQUEST + #GET)
end

local function head(length, more) return ("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%s\r\n"):format(length, more or "") end

-- The answer goes by, from the server.
local function learn(text, get)
  test.verdict(XT_CONTINUE, from_client("ack psh", get or GET))
  for at = 0, #text - 1, 1000 do test.verdict(XT_CONTINUE, from_server(text:sub(at + 1, at + 1000), at)) end
  test.equal(#test.sent(), 0)
end

-- What was sent to the client: a list of {place, payload, whether FIN}; a RST to the server is left out.
local function to_client()
  local list = {}
  for _, octets in ipairs(test.sent()) do
    local packet = test.ip(octets)
    test.checksums(packet)
    local ip = packet:data(packet_eth):data(packet_ip6)
    local tcp = ip:data(packet_tcp)
    if ip:daddr():get() == client then
      test.equal(tcp:ack_seq():get(), REQUEST + #GET)
      list[#list + 1] = { tcp:seq():get() - START & 0xffffffff, tostring(tcp:data():get()), tcp:fin():get() }
    else
      test.equal(tcp:rst():get(), true)
      test.equal(tcp:seq():get(), REQUEST)
    end
  end
  return list
end

-- What a client gets that acknowledges each segment; `lost` are places of segments that are lost once.
local function fetch(lost)
  test.verdict(NF_DROP, from_client("ack psh", GET))
  local text, waiting, fin, lost = "", {}, nil, lost or {}
  for _ = 1, 10000 do
    local segments = to_client()
    if #segments == 0 then
      if fin == #text then break end
      test.advance(1000)
      segments = to_client()
    end
    for _, segment in ipairs(segments) do
      local at, payload, is_last = table.unpack(segment)
      if lost[at] then
        lost[at] = nil
      else
        waiting[at] = payload
        if is_last then fin = at + #payload end
        while waiting[#text] and #waiting[#text] > 0 do text = text .. waiting[#text] end
        local ack = START + #text + (fin == #text and 1 or 0)
        test.verdict(NF_DROP, from_client("ack", nil, REQUEST + #GET, ack))
      end
    end
  end
  test.equal(#text, fin)
  return text
end

local function closing(text) return (text:gsub("\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1)) end

function test_answers_are_learned_and_sent()
  for _, size in ipairs { 1, 536, 10000, 300000 } do
    reset()
    objects:forget(server .. " example.org /file")
    local text = head(size) .. ("0123456789abcdef"):rep(size // 16 + 1):sub(1, size)
    learn(text)
    test.equal(fetch(), closing(text))
  end
end

function test_segments_may_come_in_any_order_and_again()
  local text = head(6000) .. ("0123456789abcdef"):rep(375)
  test.verdict(XT_CONTINUE, from_client("ack psh", GET))
  for _, part in ipairs { { 0, 1000 }, { 3000, 1000 }, { 4000, 1000 }, { 0, 500 }, { 500, 2500 }, { 5000, 9999 } } do
    local at, length = table.unpack(part)
    test.verdict(XT_CONTINUE, from_server(text:sub(at + 1, at + length), at))
  end
  test.equal(fetch(), closing(text))
end

function test_what_is_lost_comes_again()
  local text = head(30000) .. ("0123456789abcdef"):rep(1875)
  learn(text)
  test.equal(fetch { [0] = true, [536 * 12] = true, [536 * 55] = true }, closing(text))
end

function test_the_window_of_the_client_is_kept()
  learn(head(30000) .. ("x"):rep(30000))
  local small = from_client("ack psh", GET)
  small:data(packet_eth):data(packet_ip6):data(packet_tcp):window():set(1000)
  test.verdict(NF_DROP, small)
  test.equal(#to_client(), 2)
end

function test_a_syn_loses_its_timestamps_and_tells_the_segments_size()
  local options = test.hex "020405a0 0402 080a0000000100000000 01 030307"
  local header = string.pack(">I2I2I4I4BBI2I2I2", 2000, 80, REQUEST - 1, 0, (5 + #options // 4) << 4, 2, 65535, 0, 0)
  local syn = test.ip(test.ip_octets(client, server, 6, header .. options))
  test.verdict(XT_CONTINUE, syn)
  test.checksums(syn)
  test.equal(syn:data(packet_eth):data(packet_ip6):data(packet_tcp):options():get(),
    test.hex "020405a0 0402 01010101010101010101 01 030307")
  learn(head(3000) .. ("x"):rep(3000))
  test.verdict(NF_DROP, from_client("ack psh", GET))
  test.equal(#to_client()[1][2], 0x5a0)
end

function test_what_must_not_be_kept_goes_to_the_server()
  LARGEST = 5000
  for _, text in ipairs {
    head(1, "Vary: Accept\r\n") .. "x", head(1, "Set-Cookie: a=b\r\n") .. "x", head(5000) .. ("x"):rep(5000),
    head(1, "Cache-Control: private\r\n") .. "x", head(1, "Cache-Control: max-age=0\r\n") .. "x",
    "HTTP/1.1 404 Not Found\r\nContent-Length: 1\r\n\r\nx", "HTTP/1.1 200 OK\r\n\r\nx", "no HTTP",
  } do
    learn(text)
    test.verdict(XT_CONTINUE, from_client("ack psh", GET))
  end
  learn(head(1) .. "x")
  for _, field in ipairs { "Cookie: a=b", "Authorization: x", "Range: bytes=0-0", "If-None-Match: x" } do
    test.verdict(XT_CONTINUE, from_client("ack psh", GET:sub(1, -3) .. field .. "\r\n\r\n"))
  end
  test.equal(fetch(), closing(head(1) .. "x"))
end

function test_an_answer_is_good_as_long_as_it_says()
  learn(head(1, "Cache-Control: max-age=10\r\n") .. "x")
  test.advance(9999)
  test.verdict(NF_DROP, from_client("ack psh", GET))
  test.verdict(NF_DROP, from_client("rst", nil, REQUEST + #GET))
  test.advance(1)
  test.verdict(XT_CONTINUE, from_client("ack psh", GET))
end

function test_acknowledgments_from_before_change_nothing_and_a_new_connection_ends_the_old()
  learn(head(1) .. "x")
  test.verdict(NF_DROP, from_client("ack psh", GET))
  test.verdict(NF_DROP, from_client("ack", nil, REQUEST, START - 1))
  test.verdict(NF_DROP, from_client("ack", nil, REQUEST + #GET, START + 1))
  test.verdict(XT_CONTINUE, from_client("syn"))
  test.verdict(XT_CONTINUE, from_client("ack", nil, REQUEST + #GET, START + 1))
end

function test_the_end_of_a_connection_is_answered()
  learn(head(1) .. "x")
  local text = fetch()
  local last = REQUEST + #GET
  test.verdict(NF_DROP, from_client("fin ack", nil, last, START + #text + 1))
  local ip = test.ip(test.sent()[1]):data(packet_eth):data(packet_ip6)
  test.equal(ip:data(packet_tcp):ack_seq():get(), last + 1)
  test.verdict(XT_CONTINUE, from_client("ack", nil, last + 1, START + #text + 1))
end
