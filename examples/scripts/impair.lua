-- A bad network: delay, jitter, loss and reordering for tests of programs. Set the globals, here or in a script of the
-- same state.
--
-- A packet that waits is taken out of its path (NF_STOLEN) and sent anew when its time has come. Up to 4096 packets, and
-- 8 MB of them, each of which is there twice, wait in a state at a time; what comes then is lost, as in a queue. What is
-- not IP goes on at once.

DELAY = 50      -- milliseconds
JITTER = 10     -- milliseconds by which a delay may be longer or shorter, each as likely as another
LOSS = 0.01     -- of all packets
REORDER = 0.02  -- of those that are not lost: they go on at once and overtake the others

-- From 0 to just below 1.
local function chance() return nf.get_random() / 2 ^ 32 end

function process_packet(p)
  local eth = p:data(packet_eth)
  if not (eth and (eth:data(packet_ip6) or eth:data(packet_ip))) then return XT_CONTINUE end
  if chance() < LOSS then return NF_DROP end
  if chance() < REORDER then return XT_CONTINUE end
  local delay = math.floor(DELAY + (2 * chance() - 1) * JITTER + 0.5)
  if delay <= 0 then return XT_CONTINUE end
  if not pcall(nf.schedule, p, "release", 0, delay, eth:data(), packet_raw) then return NF_DROP end
  return NF_STOLEN
end

-- Called in a state of its own when the time has come.
function release(_, packet, origin)
  nf.create_packet(origin, packet:get())
end

local test = require "test"

local function packet(number)
  return test.udp("2001:db8::1", 1000, "2001:db8::2", 2000, string.pack(">I4", number))
end

local function configure(delay, jitter, loss, reorder)
  DELAY, JITTER, LOSS, REORDER = delay, jitter, loss, reorder
end

function test_a_packet_comes_out_whole_after_its_delay()
  configure(50, 0, 0, 0)
  local one = packet(7)
  test.verdict(NF_STOLEN, one)
  test.advance(49)
  test.equal(#test.sent(), 0)
  test.advance(1)
  test.equal(test.ip(test.sent()[1]), packet(7))
end

function test_jitter_lies_on_both_sides_of_the_delay()
  configure(50, 10, 0, 0)
  for number = 1, 1000 do test.verdict(NF_STOLEN, packet(number)) end
  test.advance(39)
  test.equal(#test.sent(), 0)
  test.advance(11)
  local first = #test.sent()
  if first < 400 or first > 600 then error(first .. " of 1000 came in the first half") end
  test.advance(10)
  test.equal(first + #test.sent(), 1000)
end

function test_loss_and_reordering_are_as_frequent_as_they_are_told()
  configure(50, 0, 0.2, 0.25)
  local seen = { [NF_DROP] = 0, [XT_CONTINUE] = 0, [NF_STOLEN] = 0 }
  for number = 1, 4000 do
    local verdict = test.run(packet(number))
    seen[verdict] = seen[verdict] + 1
  end
  local function about(verdict, wanted)
    if math.abs(seen[verdict] - wanted) > 100 then error(seen[verdict] .. " in place of " .. wanted) end
  end
  about(NF_DROP, 800)
  about(XT_CONTINUE, 800)
  about(NF_STOLEN, 2400)
end

function test_a_queue_that_is_full_loses_packets()
  configure(1000, 0, 0, 0)
  for number = 1, 4096 do test.verdict(NF_STOLEN, packet(number)) end
  test.verdict(NF_DROP, packet(0))
end
