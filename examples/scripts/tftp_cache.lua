-- A cache of TFTP (RFC 1350), after section 4.2.1 of the thesis: files that went by once are answered from here.
--
-- It belongs where both directions pass. A request for a file that is not known goes on to the server, and the blocks of
-- the answer are kept; the next request for it ends here, and each block follows the acknowledgment of the one before.
-- The client cannot tell: the answers come from the server's address and a port of their own, as a server's do.
--
-- Files of up to LARGEST octets are kept, the 32 MB of the thesis among them: numbers of blocks begin again at 0 behind
-- 65535, as those of most servers and clients do. Beyond TOTAL those go first that were fetched longest ago. Requests with
-- options (RFC 2347), whose answers differ, are left to the server. A file is good for LIFETIME, or until somebody writes
-- it.

LARGEST = 32 << 20  -- octets of a file
TOTAL = 64 << 20    -- octets of all files
LIFETIME = 60000    -- milliseconds
TRANSFERS = 1024    -- at a time, in each thread

local answer, blocks, lru = require "lib.answer", require "lib.blocks", require "lib.lru"

local BLOCK = 512
local DATA, ACK, ERROR = 3, 4, 5
local files, learning, serving
local answered = nf.counter "tftp_cache answered"

local function reset()
  files, learning, serving = blocks.new("tftp_cache", TOTAL), lru.new(TRANSFERS), lru.new(TRANSFERS)
end
reset()

-- Block `number` of a file, from 1 on.
local function send_block(p, ip, udp, transfer, number)
  local block = files:read(transfer.id, (number - 1) * BLOCK, BLOCK)
  local payload = block and string.pack(">I2I2", DATA, number & 0xffff) .. block
    or string.pack(">I2I2z", ERROR, 0, "the cache has lost the file")
  transfer.sent = number
  nf.create_packet(p, answer.udp(ip, transfer.port, udp:sport():get(), payload))
end

-- A packet from a client: answered here, or left to the server.
local function from_client(p, ip, udp, opcode, payload, client)
  if udp:dport():get() == 69 then
    local name, mode, options = payload:match("^..([^\0]+)\0(%a+)\0(.*)$")
    if not name then return XT_CONTINUE end
    local key = ip:daddr():get() .. " " .. mode:lower() .. " " .. name
    if opcode == 2 then files:forget(key) end
    learning:delete(client)
    serving:delete(client)
    if opcode ~= 1 or options ~= "" then return XT_CONTINUE end
    local id, size = files:find(key)
    if not id then
      learning:put(client, { key = key, server = ip:daddr():get(), file = files:begin(), blocks = 0 }, 1)
      return XT_CONTINUE
    end
    local transfer = { id = id, last = size // BLOCK + 1, sent = 0, port = 0x8000 | nf.get_random() & 0x7fff }
    serving:put(client, transfer, 1)
    answered:add()
    send_block(p, ip, udp, transfer, 1)
    return NF_DROP
  end

  local transfer = serving:get(client)
  if not transfer or udp:dport():get() ~= transfer.port then return XT_CONTINUE end
  local number = #payload >= 4 and string.unpack(">I2", payload, 3)
  -- How many blocks an acknowledgment is behind; one, if the last block or its own first copy was lost.
  local behind = number and transfer.sent - number & 0xffff
  if opcode ~= ACK or behind == 0 and transfer.sent == transfer.last then
    serving:delete(client) -- the last block has arrived, or the client gives up
  elseif behind == 0 or behind == 1 then
    send_block(p, ip, udp, transfer, transfer.sent + 1 - behind)
  end
  return NF_DROP
end

-- A block from the server: kept, if it is the next one of a file that somebody has asked for.
local function from_server(ip, payload, client)
  local transfer = learning:get(client)
  if not transfer or transfer.server ~= ip:saddr():get() then return end
  local number, block = string.unpack(">I2", payload, 3), payload:sub(5)
  if number ~= transfer.blocks + 1 & 0xffff then return end
  transfer.blocks = transfer.blocks + 1
  files:write(transfer.file, block)
  if (transfer.blocks - 1) * BLOCK + #block > LARGEST or #block > BLOCK then
    learning:delete(client)
  elseif #block < BLOCK then
    files:finish(transfer.file, transfer.key, nf.get_time() + LIFETIME)
    learning:delete(client)
  end
end

function process_packet(p)
  local eth = p:data(packet_eth)
  local ip = eth and (eth:data(packet_ip6) or eth:data(packet_ip))
  local udp = ip and ip:data(packet_udp)
  local tftp = udp and udp:data(packet_tftp)
  if not tftp then return XT_CONTINUE end
  local opcode = tftp:opcode():get()
  local client = ip:saddr():get() .. " " .. udp:sport():get()
  if udp:dport():get() == 69 or serving:get(client) then
    return from_client(p, ip, udp, opcode, tostring(udp:data():get()), client)
  end
  if opcode == DATA then
    from_server(ip, tostring(udp:data():get()), ip:daddr():get() .. " " .. udp:dport():get())
  end
  return XT_CONTINUE
end

local test = require "test"

local client, server = "2001:db8::c", "2001:db8::5"

local function request(name, opcode, more)
  local payload = string.pack(">I2zz", opcode or 1, name, "octet") .. (more or "")
  return test.udp(client, 2000, server, 69, payload)
end

local function data(number, block)
  return test.udp(server, 3000, client, 2000, string.pack(">I2I2", DATA, number) .. block)
end

-- The file goes by, from the server.
local function learn(name, content)
  test.verdict(XT_CONTINUE, request(name))
  for number = 1, #content // BLOCK + 1 do
    local block = content:sub((number - 1) * BLOCK + 1, number * BLOCK)
    test.verdict(XT_CONTINUE, data(number, block))
    test.verdict(XT_CONTINUE, data(number, block)) -- as if an acknowledgment had been lost
    test.verdict(XT_CONTINUE, test.udp(client, 2000, server, 3000, string.pack(">I2I2", ACK, number)))
  end
  test.equal(#test.sent(), 0)
end

-- What the cache answers, block by block.
local function fetch(name)
  test.verdict(NF_DROP, request(name))
  local content, number = "", 1
  while true do
    local sent = test.sent()
    test.equal(#sent, 1)
    local packet = test.ip(sent[1])
    test.checksums(packet)
    local ip = packet:data(packet_eth):data(packet_ip6)
    local udp = ip:data(packet_udp)
    test.equal(ip:saddr():get() .. ip:daddr():get(), server .. client)
    local opcode, got, block = string.unpack(">I2I2", tostring(udp:data():get()))
    test.equal(opcode, DATA)
    test.equal(got, number)
    block = tostring(udp:data():get()):sub(5)
    content = content .. block
    test.verdict(NF_DROP, test.udp(client, 2000, server, udp:sport():get(), string.pack(">I2I2", ACK, number)))
    if #block < BLOCK then return content end
    number = number + 1
  end
end

function test_files_are_learned_and_answered()
  for _, size in ipairs { 0, 1, 511, 512, 513, 1024, 5000, 100000 } do
    local content = ("0123456789abcdef"):rep(size // 16 + 1):sub(1, size)
    learn("file" .. size, content)
    test.equal(fetch("file" .. size), content)
  end
end

function test_an_acknowledgment_that_comes_again_is_answered_again()
  learn("file", ("x"):rep(1000))
  test.verdict(NF_DROP, request "file")
  local port = test.ip(test.sent()[1]):data(packet_eth):data(packet_ip6):data(packet_udp):sport():get()
  for _ = 1, 2 do
    test.verdict(NF_DROP, test.udp(client, 2000, server, port, string.pack(">I2I2", ACK, 1)))
    test.equal(#test.sent(), 1)
  end
end

function test_what_is_too_large_or_old_or_has_options_goes_to_the_server()
  LARGEST = 1000
  learn("large", ("x"):rep(1001))
  test.verdict(XT_CONTINUE, request "large")
  learn("file", "content")
  test.verdict(XT_CONTINUE, request("file", 1, "blksize\0" .. "1024\0"))
  test.equal(fetch "file", "content")
  test.advance(LIFETIME)
  test.verdict(XT_CONTINUE, request "file")
end

function test_the_oldest_files_go_first()
  TOTAL = 2048
  reset()
  for _, name in ipairs { "a", "b", "c" } do learn(name, name:rep(400)) end
  test.verdict(XT_CONTINUE, request "a")
  test.equal(fetch "c", ("c"):rep(400))
end

function test_a_file_that_goes_meanwhile_ends_with_an_error()
  TOTAL = 8192
  reset()
  learn("file", ("x"):rep(5000))
  test.verdict(NF_DROP, request "file")
  local port = test.ip(test.sent()[1]):data(packet_eth):data(packet_ip6):data(packet_udp):sport():get()
  files:write(files:begin(), ("y"):rep(8192))
  test.verdict(NF_DROP, test.udp(client, 2000, server, port, string.pack(">I2I2", ACK, 1)))
  local udp = test.ip(test.sent()[1]):data(packet_eth):data(packet_ip6):data(packet_udp)
  test.equal(udp:data(packet_tftp):opcode():get(), ERROR)
end

function test_a_file_that_is_written_is_forgotten()
  learn("file", "content")
  test.verdict(XT_CONTINUE, request("file", 2))
  test.verdict(XT_CONTINUE, request "file")
end

function test_a_file_with_a_block_missing_is_not_kept()
  test.verdict(XT_CONTINUE, request "file")
  test.verdict(XT_CONTINUE, data(2, "end"))
  test.verdict(XT_CONTINUE, request "file")
end
