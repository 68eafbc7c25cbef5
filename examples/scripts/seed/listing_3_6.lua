-- Listing 3.6 of A. Graf, "PacketScript - A Lua scripting engine for in-kernel packet processing", University of
-- Basel, 2010. As printed; a line that is an ellipsis there is a comment here.

function process_packet(p)
   eth = p:data(packet_eth)
   smac = eth:smac()
   dmac = eth:dmac()

   if smac:get() == "01:23:45:67:89:AB" then
        dmac:set("FF:FF:FF:FF:FF:")
   end
   -- ...
end
