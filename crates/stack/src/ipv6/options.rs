//! Options of Hop-by-Hop and Destination Options headers (RFC 8200 §4.2).

use wire::icmp_error::Reason;

use super::refusal::{Refusal, erroneous};
use crate::DropReason;

const PAD1: u8 = 0;
const PADN: u8 = 1;
/// Router Alert (RFC 2711): for routers.
const ROUTER_ALERT: u8 = 5;
/// Options other than padding that a header may have: as RFC 8504 §5.3 recommends for hosts.
const MAX_OPTIONS: usize = 8;

/// Checks an options header that begins at `offset` of its packet. What is not known is skipped or refuses the packet, as
/// the two highest bits of its type want it.
pub(super) fn check(header: &[u8], offset: usize) -> Result<(), Refusal> {
    let (mut at, mut options) = (2, 0);
    while let Some(kind) = header.get(at) {
        if *kind == PAD1 {
            at += 1;
            continue;
        }
        let pointer = offset + at;
        let length = *header.get(at + 1).ok_or(erroneous(DropReason::MalformedHeader, pointer))?;
        at += 2 + usize::from(length);
        if at > header.len() {
            return Err(erroneous(DropReason::MalformedHeader, pointer + 1));
        }
        if *kind == PADN {
            continue;
        }
        options += 1;
        if options > MAX_OPTIONS {
            return Err(Refusal::Silent(DropReason::TooManyHeaders));
        }
        if *kind == ROUTER_ALERT {
            continue;
        }
        match kind >> 6 {
            0 => {}
            1 => return Err(Refusal::Silent(DropReason::UnknownOption)),
            action => {
                let reason =
                    Reason::UnrecognizedOption { pointer: pointer as u32, even_if_multicast: action == 2 };
                return Err(Refusal::Answered(DropReason::UnknownOption, reason));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn with(option: &[u8]) -> Result<(), Refusal> {
        let mut header = vec![59, 0];
        header.extend(option);
        header.resize(header.len().next_multiple_of(8), 0);
        check(&header, 40)
    }

    fn unknown(even_if_multicast: bool) -> Result<(), Refusal> {
        let reason = Reason::UnrecognizedOption { pointer: 42, even_if_multicast };
        Err(Refusal::Answered(DropReason::UnknownOption, reason))
    }

    #[test]
    fn rfc_8200_4_2_the_highest_bits_of_an_unknown_type_say_what_to_do() {
        assert_eq!(with(&[0x1e, 0]), Ok(()));
        assert_eq!(with(&[0x5e, 0]), Err(Refusal::Silent(DropReason::UnknownOption)));
        assert_eq!(with(&[0x9e, 0]), unknown(true));
        assert_eq!(with(&[0xde, 0]), unknown(false));
        assert_eq!(with(&[0xc2, 4, 0, 1, 0, 0]), unknown(false), "jumbograms are not for us");
    }

    #[test]
    fn padding_and_router_alert_are_known() {
        assert_eq!(with(&[5, 2, 0, 0, 1, 0]), Ok(()));
        assert_eq!(with(&[0, 0, 0, 1, 1, 0]), Ok(()));
    }

    #[test]
    fn an_option_that_leaves_its_header_is_refused_at_its_length() {
        assert_eq!(with(&[1, 5, 0, 0, 0, 0]), Err(erroneous(DropReason::MalformedHeader, 43)));
        assert_eq!(with(&[0, 0, 0, 0, 0, 1]), Err(erroneous(DropReason::MalformedHeader, 47)));
    }

    #[test]
    fn a_flood_of_options_is_refused() {
        assert_eq!(with(&[0x1e, 0].repeat(9)), Err(Refusal::Silent(DropReason::TooManyHeaders)));
    }

    proptest! {
        #[test]
        fn any_octets_are_checked_without_panic(
            header in proptest::collection::vec(any::<u8>(), 0..80)
        ) {
            let _ = check(&header, 40);
        }
    }
}
