-- Connections to one address are shared among servers; each stays with its own. Servers answer
-- through this machine. At ingress of the outer interface and at egress of it.

local SERVICE = "2001:db8:5::80"
local SERVERS = { "2001:db8:5::1", "2001:db8:5::2", "2001:db8:5::3" }
-- Which of them a client's port has.
local chosen = nf.table { name = "balance chosen", key = { "ipv6", "int" }, limit = 65536, expires = 300000, when_full = "oldest" }

function process_packet(p)
  local ip = p:data(packet_eth):data(packet_ip6)
  local tcp = ip and ip:data(packet_tcp)
  if not tcp then return XT_CONTINUE end
  if ip:daddr():get() == SERVICE then
    local client, port = ip:saddr():get(), tcp:sport():get()
    local server = chosen:get(client, port)
    if not server and not tcp:syn():get() then return NF_DROP end
    local number = server or nf.get_random() % #SERVERS + 1
    chosen:set(client, port, number)
    ip:daddr():set(SERVERS[number])
  else
    local server = chosen:get(ip:daddr():get(), tcp:dport():get())
    if server and SERVERS[server] == ip:saddr():get() then ip:saddr():set(SERVICE) end
  end
  return XT_CONTINUE
end

local test = require "test"

local function server_of(port, flags)
  local packet = test.tcp("2001:db8:c::1", port, SERVICE, 80, flags)
  test.verdict(XT_CONTINUE, packet)
  test.checksums(packet)
  return packet:data(packet_eth):data(packet_ip6):daddr():get()
end

function test_each_connection_stays_with_its_server()
  local used = {}
  for port = 1, 60 do
    local server = server_of(port, "syn")
    used[server] = true
    for _ = 1, 3 do test.equal(server_of(port, "ack"), server) end
    local answer = test.tcp(server, 80, "2001:db8:c::1", port, "ack")
    test.run(answer)
    test.equal(answer, test.tcp(SERVICE, 80, "2001:db8:c::1", port, "ack"))
  end
  for _, server in ipairs(SERVERS) do test.equal(used[server], true, server) end
end

function test_what_has_not_begun_is_dropped()
  test.verdict(NF_DROP, test.tcp("2001:db8:c::1", 1, SERVICE, 80, "ack"))
end
