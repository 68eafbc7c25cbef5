-- How large packets are, as a histogram of each IP version that metrics export, and fragments of IPv4 in a capture. Runs in
-- the kernel; `sidestep metrics --once scripts` and `sidestep script table dump sizes_of_ipv6` show it.

local function sizes(version)
  return nf.histogram {
    name = "sizes_of_ipv" .. version, metric = "packet_size", labels = { version = version }, unit = "bytes",
    help = "Octets of IP packets", buckets = { 64, 128, 256, 512, 1024, 1500 },
  }
end

local of_ipv4, of_ipv6 = sizes "4", sizes "6"

function process_packet(p)
  local eth = p:data(packet_eth)
  local ip6 = eth:data(packet_ip6)
  if ip6 then
    of_ipv6:observe(40 + ip6:payload_len():get())
    return XT_CONTINUE
  end
  local ip = eth:data(packet_ip)
  if not ip then return XT_CONTINUE end
  of_ipv4:observe(ip:tot_len():get())
  if ip:mf():get() or ip:frag_off():get() ~= 0 then nf.capture(p, "fragments") end
  return XT_CONTINUE
end

local test = require "test"

function test_each_version_has_its_own()
  for _, length in ipairs { 1, 2, 500 } do
    test.verdict(XT_CONTINUE, test.udp("2001:db8::1", 1, "2001:db8::2", 2, ("x"):rep(length)))
  end
  test.verdict(XT_CONTINUE, test.udp("192.0.2.1", 1, "192.0.2.2", 2, "hello"))
  test.equal(of_ipv6:count(), 3)
  test.equal(of_ipv6:sum(), 3 * 48 + 503)
  test.equal(of_ipv4:count(), 1)
  test.equal(of_ipv4:sum(), 33)
end

function test_fragments_are_captured_and_nothing_else()
  local packet = test.udp("192.0.2.1", 1, "192.0.2.2", 2, "hello")
  test.verdict(XT_CONTINUE, packet)
  test.equal(#test.captured(), 0)
  packet:data(packet_eth):data(packet_ip):mf():set(true)
  test.verdict(XT_CONTINUE, packet)
  local captured = test.captured()
  test.equal(#captured, 1)
  test.equal(captured[1].name, "fragments")
  test.equal(#captured[1].octets, 33)
end
