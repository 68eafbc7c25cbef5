-- Listing 3.4, within the function of listing 3.1, of A. Graf, "PacketScript - A Lua scripting engine for in-kernel packet processing", University of
-- Basel, 2010. As printed; a line that is an ellipsis there is a comment here.

function process_packet(p)
        dmac = p:raw(0,6)
        -- ...
        dmac:set(0xFF)
        byte1 = dmac:raw(0,1)
        byte2 = dmac:raw(1,1)
        byte3 = dmac:raw(2,1)
        byte4 = dmac:raw(3,1)
        byte5 = dmac:raw(4,1)
        byte6 = dmac:raw(5,1)

        byte1:set(0xFF)
        byte2:set(0x00)
        -- ...
end
