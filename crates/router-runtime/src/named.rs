//! What providers tell by names, looked up at their servers ([`crate::lookups`]): the AFTR (DS-Lite, RFC 6333), whose name has
//! come by DHCPv6 (RFC 6334), and the prefix of a translator, which is behind a name that everybody knows (RFC 7050).

use std::net::Ipv6Addr;
use std::time::Duration;

use dns::{Found as Record, Kind, LookupError, Records};
use router::nat64::{Prefix, prefixes};

use crate::lookups::{Found, Nothing, Question};

/// How long an AFTR's address is believed before it is looked whether there is another one, after four fifths of it.
const FRESH: Duration = Duration::from_secs(375);

/// The addresses of an AFTR, by the machine's servers where its provider names none. One that was found stays until there is
/// another, whatever is said of it.
pub(super) fn aftr(question: &Question) -> Result<Found<Ipv6Addr>, Nothing> {
    let asked = match question.servers[..] {
        [] => dns::lookup(&question.name, Kind::Aaaa),
        _ => ask(question).map(|records| records.found),
    };
    let found = asked.map_err(|error| Nothing { why: error.to_string(), is_certain: false })?;
    let usable = |address: &Ipv6Addr| {
        !address.is_unspecified()
            && !address.is_loopback()
            && !address.is_multicast()
            && !address.is_unicast_link_local()
    };
    let usable: Vec<_> = addresses(found).into_iter().filter(usable).collect();
    if usable.is_empty() {
        return Err(Nothing { why: "no address that it has can be one's".to_owned(), is_certain: false });
    }
    Ok((usable, FRESH))
}

/// The prefixes of a translator. Of servers elsewhere nothing is asked: theirs would be another one.
pub(super) fn translator(question: &Question) -> Result<Found<Prefix>, Nothing> {
    if question.servers.is_empty() {
        let why = "no name server of this uplink is known".to_owned();
        return Err(Nothing { why, is_certain: false });
    }
    let Records { found, ttl } = ask(question).map_err(|error| {
        let is_certain = matches!(error, LookupError::NoSuchName | LookupError::NoRecord(_));
        Nothing { why: error.to_string(), is_certain }
    })?;
    let found = prefixes(&addresses(found));
    if found.is_empty() {
        let why = "none of its addresses of IPv6 has 192.0.0.170 or 192.0.0.171 in it".to_owned();
        return Err(Nothing { why, is_certain: true });
    }
    Ok((found, ttl))
}

/// Asks the servers of the uplink, by the uplink.
fn ask(question: &Question) -> Result<Records, LookupError> {
    dns::lookup_by(&question.name, Kind::Aaaa, &question.servers, |server| question.open(server))
}

fn addresses(found: Vec<Record>) -> Vec<Ipv6Addr> {
    let addresses = found.into_iter().filter_map(|found| match found {
        Record::Address(address) => Some(address),
        Record::Text(_) => None,
    });
    addresses.collect()
}
