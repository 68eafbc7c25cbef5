//! Why packets go no further in a carrier, beside the reasons of `ipsec` and `ike`.

wire::drop_reasons! {
    /// An inner packet that is none of IP, or whose segments cannot be told.
    Unreadable = "unreadable",
    /// An inner packet is larger than its path: its sender was told.
    TooBig = "too_big",
    /// Somebody has said that the way is narrower, and quoted no packet of ours.
    StrangeTooBig = "strange_too_big",
    /// What came out of a child is not what the child is for.
    NotSelected = "not_selected",
    /// What is to leave needs no protection, or other than there is here: a carrier sends nothing in clear.
    NoTunnel = "no_tunnel",
    /// A datagram that is too short for ESP.
    Runt = "runt",
}
