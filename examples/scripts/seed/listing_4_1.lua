-- Listing 4.1 of A. Graf, "PacketScript - A Lua scripting engine for in-kernel packet processing", University of
-- Basel, 2010. As printed; a line that is an ellipsis there is a comment here.

-- Translating the source address for outgoing packets
   function process_packet_snat(p)
           local ip = p:data(packet_eth):data(packet_ip)
           if not ip then return NF_DROP end
           ip:saddr():set("10.0.0.1")
           return XT_CONTINUE
   end

   -- Translating destination address for incomming packets
   function process_packet_dnat(p)
           local ip = p:data(packet_eth):data(packet_ip)
           if not ip then return NF_DROP end

           ip:daddr():set("192.168.0.2")

           return XT_CONTINUE
   end
