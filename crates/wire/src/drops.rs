//! How a crate declares why packets go no further: each reason once, with its name and what it means.

/// Declares `DropReason`, and `Drops`, a counter for each reason.
///
/// The name is the label in a status or in metrics, and stays what it is.
///
/// ```
/// sidestep_wire::drop_reasons! {
///     /// A packet is shorter than its header says.
///     TooShort = "too_short",
///     /// Nobody has its destination.
///     NoRoute = "no_route",
/// }
///
/// let mut drops = Drops::default();
/// drops.count(DropReason::NoRoute);
/// assert_eq!(DropReason::ALL.map(DropReason::name), ["too_short", "no_route"]);
/// assert_eq!(drops.nonzero().collect::<Vec<_>>(), [(DropReason::NoRoute, 1)]);
/// ```
#[macro_export]
macro_rules! drop_reasons {
    ($($(#[$meaning:meta])* $reason:ident = $name:literal,)+) => {
        /// Why a packet or datagram went no further.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum DropReason {
            $($(#[$meaning])* $reason,)+
        }

        impl DropReason {
            /// All reasons, in the order of the counters.
            pub const ALL: [DropReason; [$($name),+].len()] = [$(DropReason::$reason),+];

            /// The label in status and metrics.
            pub const fn name(self) -> &'static str {
                match self {
                    $(DropReason::$reason => $name,)+
                }
            }
        }

        /// A counter for each reason.
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub struct Drops([u64; DropReason::ALL.len()]);

        impl Drops {
            /// Counts one.
            pub fn count(&mut self, reason: DropReason) {
                self.0[reason as usize] += 1;
            }

            /// How often for this reason.
            pub fn of(&self, reason: DropReason) -> u64 {
                self.0[reason as usize]
            }

            /// The reasons that occurred, with their counts.
            pub fn nonzero(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
                DropReason::ALL.into_iter().map(|reason| (reason, self.of(reason))).filter(|(_, n)| *n > 0)
            }
        }
    };
}
