//! What a script wants of the link header. Lua gets packets from netfilter, without one.

use crate::compile::Refusal;
use crate::syntax;
use crate::syntax::names::methods_within;
use crate::syntax::tree::Mentioned;

/// The first address of the Ethernet header that a function asks for by its name and that Lua has not: the source is there
/// where packets `come_in`. What a text does not show fails at the packet.
pub fn unmet(source: &str, function: &str, come_in: bool) -> Option<Refusal> {
    let chunk = syntax::parse(source).ok()?;
    // A protocol of the script's own may have fields of these names.
    let declares = |name: &str| name == "register_dynamic_protbuf";
    if chunk.mentions.iter().any(|one| one.what == Mentioned::Global && declares(&one.name)) {
        return None;
    }
    let address = methods_within(&chunk, function).find(|method| match &*method.name {
        "dmac" | "vlan_id" | "push_vlan" | "pop_vlan" => true,
        "smac" => !come_in,
        _ => false,
    })?;
    if address.name.contains("vlan") {
        let reason = format!("'{}': Lua gets packets without their link header and VLAN tag", address.name);
        return Some(Refusal { line: address.line, reason });
    }
    let reason = format!(
        "'{}': Lua gets packets without their link header; of that it has the source address alone, of packets that come \
         in",
        address.name
    );
    Some(Refusal { line: address.line, reason })
}

#[cfg(test)]
mod tests {
    use super::unmet;

    const TEXT: &str = "
local function is_near(eth) return eth:smac():get() == '02:00:00:00:00:01' end
local function to_all(eth)
  return eth:dmac():get() == 'FF:FF:FF:FF:FF:FF'
end
function near(p) return is_near(p:data(packet_eth)) and NF_ACCEPT or NF_DROP end
function all(p) return to_all(p:data(packet_eth)) and NF_ACCEPT or NF_DROP end
function none(p) return NF_ACCEPT end
";

    #[test]
    fn addresses_are_found_in_what_a_function_calls() {
        let line = |function, come_in| unmet(TEXT, function, come_in).map(|refusal| refusal.line);
        assert_eq!((line("near", true), line("near", false)), (None, Some(2)));
        assert_eq!((line("all", true), line("none", false)), (Some(4), None));
    }

    #[test]
    fn a_protocol_of_the_scripts_own_may_have_such_fields() {
        let text =
            format!("register_dynamic_protbuf {{ name = 'packet_mine', protocol_fields = {{}} }}\n{TEXT}");
        assert_eq!(unmet(&text, "all", false), None);
    }
}
