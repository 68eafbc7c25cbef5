-- Listing 3.2, within the function of listing 3.1, of A. Graf, "PacketScript - A Lua scripting engine for in-kernel packet processing", University of
-- Basel, 2010. As printed; a line that is an ellipsis there is a comment here.

function process_packet(p)
        dmac = p:raw(0,6)
        -- ...
        val = dmac:get()
        byte1 = val[0]
        byte2 = val[1]
        byte3 = val[2]
        byte4 = val[3]
        byte5 = val[4]
        byte6 = val[5]
        -- ...
end
