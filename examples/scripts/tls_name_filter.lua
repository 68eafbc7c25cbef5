-- TLS connections to a name are ended at their first message: the name that a ClientHello asks for stands in the clear.

local REFUSED = { ["forbidden.example"] = true }

function process_packet(p)
  local eth = p:data(packet_eth)
  local ip = eth:data(packet_ip6) or eth:data(packet_ip)
  local tcp = ip and ip:data(packet_tcp)
  if not tcp or tcp:dport():get() ~= 443 then return XT_CONTINUE end
  -- So far the kernel comes by itself: only what looks like a ClientHello is handed over to Lua.
  local bytes = tcp:data():get()
  if #bytes < 6 or bytes[0] ~= 22 or bytes[5] ~= 1 then return XT_CONTINUE end
  local record = tcp:data(packet_tls)
  if record and REFUSED[record:server_name():get():lower()] then return NF_DROP end
  return XT_CONTINUE
end

local test = require "test"

local function client_hello(name)
  local entry = string.pack(">I1s2", 0, name)
  local extensions = string.pack(">I2s2", 10, "\0\2\0\29") .. string.pack(">I2s2", 0, string.pack(">s2", entry))
  local hello = test.hex "0303" .. ("r"):rep(32) .. "\0" .. test.hex "0002 1301 0100" .. string.pack(">s2", extensions)
  local handshake = "\1" .. string.pack(">I3", #hello) .. hello
  return test.tcp("2001:db8::a", 5000, "2001:db8::1", 443, "ack psh", test.hex "16 0301" .. string.pack(">s2", handshake))
end

function test_the_name_decides()
  test.verdict(NF_DROP, client_hello "forbidden.example")
  test.verdict(NF_DROP, client_hello "Forbidden.Example")
  test.verdict(XT_CONTINUE, client_hello "allowed.example")
end

function test_what_is_no_client_hello_goes_on()
  for _, payload in ipairs { "", "GET / HTTP/1.1\r\n\r\n", test.hex "16 0301 0004 01000000", ("\22"):rep(60) } do
    test.verdict(XT_CONTINUE, test.tcp("2001:db8::a", 5000, "2001:db8::1", 443, "ack", payload))
  end
end
