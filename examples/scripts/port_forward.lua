-- A server inside by an address of the gateway: what comes for port 8443 of PUBLIC goes to port 443 of SERVER, and its answers
-- come from PUBLIC. The server needs no address that others know. At ingress of the outer interface, and at egress of it.

local PUBLIC, PORT = "2001:db8:f::1", 8443
local SERVER, SERVICE = "2001:db8:a::80", 443

function process_packet(p)
  local ip = p:data(packet_eth):data(packet_ip6)
  local tcp = ip and ip:data(packet_tcp)
  if not tcp then return XT_CONTINUE end
  if tcp:dport():get() == PORT and ip:daddr():get() == PUBLIC then
    ip:daddr():set(SERVER)
    tcp:dport():set(SERVICE)
  elseif tcp:sport():get() == SERVICE and ip:saddr():get() == SERVER then
    ip:saddr():set(PUBLIC)
    tcp:sport():set(PORT)
  end
  return XT_CONTINUE
end

local test = require "test"
local client = "2001:db8:c::1"

function test_there_and_back()
  local syn = test.tcp(client, 1000, PUBLIC, PORT, "syn")
  test.run(syn)
  test.equal(syn, test.tcp(client, 1000, SERVER, SERVICE, "syn"))
  local answer = test.tcp(SERVER, SERVICE, client, 1000, "syn ack")
  test.run(answer)
  test.equal(answer, test.tcp(PUBLIC, PORT, client, 1000, "syn ack"))
end

function test_other_ports_are_left_alone()
  local syn = test.tcp(client, 1000, PUBLIC, 443, "syn")
  test.run(syn)
  test.equal(syn, test.tcp(client, 1000, PUBLIC, 443, "syn"))
end
