-- Listing 3.7 of A. Graf, "PacketScript - A Lua scripting engine for in-kernel packet processing", University of
-- Basel, 2010. As printed; a line that is an ellipsis there is a comment here.

function process_packet(p)
   eth = p:data(packet_eth)
   ip = eth:data(packet_ip)
   saddr = ip:saddr():get()
   daddr = ip:daddr():get()
   -- ...
end
