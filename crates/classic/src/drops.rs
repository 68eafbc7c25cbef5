//! Why a packet went no further. One list for counters, status and the documentation.

wire::drop_reasons! {
    /// An inner packet is between hosts that have no stream.
    NoStream = "no_stream",
    /// An inner packet does not fit.
    TooBig = "too_big",
    /// An inner packet is not a whole IPv6 packet, before or after the tunnel.
    MalformedInner = "malformed_inner",
    /// An outer packet is not a whole IPv6 packet, or its UDP length is wrong.
    Malformed = "malformed",
    /// An outer packet's addresses are no route's.
    NoRoute = "no_route",
    /// An outer packet's route has expired.
    ExpiredRoute = "expired_route",
    /// No UDP header follows.
    NoUdp = "no_udp",
    /// The Destination Options are malformed.
    MalformedOption = "malformed_option",
    /// The Destination Options hold an option of another type.
    UnknownOption = "unknown_option",
    /// The UDP checksum is wrong or missing.
    Checksum = "checksum",
    /// The ports are not those of the route.
    WrongPort = "wrong_port",
    /// The encryption is not that of the stream.
    CipherMismatch = "cipher_mismatch",
    /// The ciphertext is not a whole number of blocks.
    WrongLength = "wrong_length",
    /// What was decrypted is no IPv6 packet.
    WrongKey = "wrong_key",
    /// What was decrypted has another length than it says, or its padding is not zero.
    WrongPadding = "wrong_padding",
    /// An offer of a key cannot be accepted.
    OfferRefused = "offer_refused",
    /// An offer lost against this end's own.
    OfferCollision = "offer_collision",
    /// An ICMPv6 error about an outer packet cannot be translated.
    MalformedError = "malformed_error",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_explains_every_drop_reason() {
        let document = include_str!("../../../docs/classic.md");
        for reason in DropReason::ALL {
            assert!(document.contains(&format!("| `{}` |", reason.name())), "{}", reason.name());
        }
    }
}
