//! The crate `ike` and strongSwan agree, whoever begins. `ike_host`, an example of the crate, is our end; theirs is Debian's
//! charon with its IPsec in user space. Each story sends pings through what the two have agreed on.
//!
//! | file | stories |
//! |---|---|
//! | `basics` | shared keys, both ends as initiator; these run at quick scale, the others at full scale |
//! | `algorithms` | groups, encryptions, cookies |
//! | `certificates` | kinds of keys, chains, what must be refused; fragments |
//! | `lifetimes` | rekeys, reauthentication, liveness, with pings over them |
//! | `places` | NAT, MOBIKE |
//! | `clients` | addresses, DNS, narrowing |

mod algorithms;
mod basics;
mod certificates;
mod clients;
mod lifetimes;
mod places;
mod scene;
