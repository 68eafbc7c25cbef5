-- Listing 3.8 of A. Graf, "PacketScript - A Lua scripting engine for in-kernel packet processing", University of
-- Basel, 2010. As printed; a line that is an ellipsis there is a comment here.

function eth_policy(seg, type)
           return true
   end
   function eth_precalc(seg)
       local offset = {0,0,0,0,0,0}
       local length = {0,0,0,0,0,0}
       -- check if frame is vlan tagged according to IEEE 802.1Q
       if seg[12] == 0x81 and seg[13] == 0x00 then
            -- change offset of the type and data fields
           offset = {0,0,0,128,144}
            -- change length of the vlan field
           length = {0,0,32,0,0}
       end

       return offset, length

   end
   local eth_prot_buf = {
       name = "packet_eth_dyn",
       payload_field = "data",
       protocol_fields = {
            {"dmac",   0, 48, nil, nil},
            {"smac", 48, 48, nil, nil},
            {"vlan", 96, 0, nil, nil},
            {"type", 96, 16, nil, nil},
            {"data", 112, 0, nil, nil},
       },
       has_protocol = "eth_policy",
       get_field_changes = "eth_precalc"

   }
  register_dynamic_protbuf(eth_prot_buf)
