//! What seals and opens the messages of an IKE SA: SK payloads (RFC 7296 §3.14), and fragments (RFC 7383).

use std::time::{Duration, Instant};

use crate::drops::DropReason;
use crate::keys::{IkeKeys, Role};
use crate::message::builder::Builder;
use crate::message::{HEADER, Header, Message, PAYLOAD_HEADER, ParseError};
use crate::numbers::{ExchangeType, IkeSpi, MessageId, PayloadType};
use crate::random::Random;

/// Messages that are longer go in fragments, if the other end knows them. What every IPv6 path carries (1280), less the
/// headers of IPv6 and UDP and the non-ESP marker.
const FRAGMENT_FROM: usize = 1280 - 40 - 8 - 4;
/// More fragments than a message of certificates needs. It bounds what is kept of one that is not whole.
const MAX_FRAGMENTS: u16 = 32;
/// Longer messages are not put together: what is kept for an end that has not authenticated itself is bounded by this.
const MAX_REASSEMBLED: usize = 32 * 1024;
/// Fragments whose message is not whole after this time are forgotten: as long as an initiator goes on asking (RFC 7383 §2.6).
const MAX_WAIT: Duration = Duration::from_secs(300);
/// Fragment Number and Total Fragments.
const FRAGMENT_HEADER: usize = 4;

/// One end of an IKE SA: who the two are, and their keys.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) role: Role,
    pub(crate) initiator_spi: IkeSpi,
    pub(crate) responder_spi: IkeSpi,
    pub(crate) keys: IkeKeys,
    /// Whether both ends know fragments.
    pub(crate) fragments: bool,
    requests: Reassembly,
    responses: Reassembly,
}

/// What came out of a message.
#[derive(Debug)]
pub(crate) enum Opened {
    /// All payloads: the type of the first one, and their bytes.
    Whole(PayloadType, Vec<u8>),
    /// A genuine fragment; others are missing.
    Fragment,
}

impl Channel {
    pub(crate) fn new(
        role: Role,
        initiator_spi: IkeSpi,
        responder_spi: IkeSpi,
        keys: IkeKeys,
        fragments: bool,
    ) -> Self {
        let (requests, responses) = Default::default();
        Self { role, initiator_spi, responder_spi, keys, fragments, requests, responses }
    }

    /// One of the two ends of an IKE SA that all fixtures are of.
    #[cfg(test)]
    pub(crate) fn fixture(role: Role, fragments: bool) -> Self {
        let suite = crate::keys::IkeSuite {
            encryption: crate::crypto::encryption::Encryption::Aes128Gcm,
            integrity: None,
            prf: crate::crypto::prf::Prf::HmacSha256,
            group: crate::crypto::group::Group::Curve25519,
        };
        let exchanged = crate::keys::Exchanged {
            initiator_spi: IkeSpi(1),
            responder_spi: IkeSpi(2),
            initiator_nonce: vec![1; 32],
            responder_nonce: vec![2; 32],
        };
        let shared = crate::crypto::secret::Secret::new(vec![3; 32]);
        let keys = IkeKeys::derive(&suite, role, &shared, &exchanged).unwrap();
        Self::new(role, IkeSpi(1), IkeSpi(2), keys, fragments)
    }

    /// This end's SPI.
    pub(crate) fn own_spi(&self) -> IkeSpi {
        match self.role {
            Role::Initiator => self.initiator_spi,
            Role::Responder => self.responder_spi,
        }
    }

    /// Whether a header has both SPIs, and comes from the other end.
    pub(crate) fn is_from_peer(&self, header: &Header) -> bool {
        (header.initiator_spi, header.responder_spi) == (self.initiator_spi, self.responder_spi)
            && header.from_initiator == (self.role == Role::Responder)
    }

    /// The message of these payloads, in as many datagrams as it takes.
    pub(crate) fn seal(
        &mut self,
        exchange: ExchangeType,
        is_response: bool,
        message_id: MessageId,
        payloads: &Builder,
        random: &mut dyn Random,
    ) -> Vec<Vec<u8>> {
        let header = Header {
            initiator_spi: self.initiator_spi,
            responder_spi: self.responder_spi,
            exchange,
            from_initiator: self.role == Role::Initiator,
            is_response,
            message_id,
        };
        let (first, inner) = (payloads.first(), payloads.bytes());
        let whole = HEADER + PAYLOAD_HEADER + self.keys.outbound.sealed_length(inner.len());
        if !self.fragments || whole <= FRAGMENT_FROM {
            return vec![self.seal_one(&header, PayloadType::SK, first, &[], inner, random)];
        }
        let overhead = whole - inner.len() + FRAGMENT_HEADER;
        // Padding of CBC may come on top: a block of room.
        let pieces: Vec<_> = inner.chunks(FRAGMENT_FROM - overhead - 16).collect();
        let total = pieces.len() as u16;
        let sealed = pieces.into_iter().zip(1u16..).map(|(piece, number)| {
            let place = [number.to_be_bytes(), total.to_be_bytes()].concat();
            let first = if number == 1 { first } else { PayloadType::NONE };
            self.seal_one(&header, PayloadType::SKF, first, &place, piece, random)
        });
        sealed.collect()
    }

    fn seal_one(
        &mut self,
        header: &Header,
        kind: PayloadType,
        first: PayloadType,
        place: &[u8],
        inner: &[u8],
        random: &mut dyn Random,
    ) -> Vec<u8> {
        let payload = PAYLOAD_HEADER + place.len() + self.keys.outbound.sealed_length(inner.len());
        let length = HEADER + payload;
        let mut message = Vec::with_capacity(length);
        message.extend(header.to_bytes(kind, length as u32));
        message.extend([first.0, 0]);
        message.extend((payload as u16).to_be_bytes());
        message.extend(place);
        self.keys.outbound.seal(&mut message, inner, random);
        message
    }

    /// Whether the other end has sealed the message, and it is the first or only fragment of one.
    pub(crate) fn is_genuine_first(&self, message: &Message<'_>) -> bool {
        match Sealed::of(message) {
            Ok(sealed) => sealed.number == 1 && self.open_one(message, &sealed).is_ok(),
            Err(_) => false,
        }
    }

    /// What is inside of a message, if the other end has sealed it.
    pub(crate) fn open(&mut self, message: &Message<'_>, now: Instant) -> Result<Opened, DropReason> {
        let sealed = Sealed::of(message)?;
        // §2.4: not unless both have said that they know them.
        if sealed.is_fragment && !self.fragments {
            return Err(DropReason::BadFragment);
        }
        self.forget_fragments(now);
        let header = message.header();
        if self.reassembly(&header).has(header.message_id, &sealed) {
            return Ok(Opened::Fragment);
        }
        let content = self.open_one(message, &sealed)?;
        let reassembly = self.reassembly(&header);
        if sealed.total == 1 {
            *reassembly = Reassembly::default();
            return Ok(Opened::Whole(sealed.first, content));
        }
        reassembly.add(header.message_id, &sealed, content, now)
    }

    fn reassembly(&mut self, header: &Header) -> &mut Reassembly {
        if header.is_response { &mut self.responses } else { &mut self.requests }
    }

    /// When fragments are to be [forgotten](Self::forget_fragments).
    pub(crate) fn deadline(&self) -> Option<Instant> {
        [&self.requests, &self.responses].into_iter().filter_map(Reassembly::deadline).min()
    }

    /// Forgets those whose message has not become whole in time.
    pub(crate) fn forget_fragments(&mut self, now: Instant) {
        for reassembly in [&mut self.requests, &mut self.responses] {
            if reassembly.deadline().is_some_and(|at| at <= now) {
                *reassembly = Reassembly::default();
            }
        }
    }

    fn open_one(&self, message: &Message<'_>, sealed: &Sealed<'_>) -> Result<Vec<u8>, DropReason> {
        let (aad, _) = message.bytes().split_at(message.bytes().len() - sealed.body.len());
        self.keys.inbound.open(aad, sealed.body).map_err(|_| DropReason::NotAuthentic)
    }
}

/// The last payload of a message, which must be SK or SKF.
struct Sealed<'a> {
    is_fragment: bool,
    first: PayloadType,
    number: u16,
    total: u16,
    body: &'a [u8],
}

impl<'a> Sealed<'a> {
    fn of(message: &Message<'a>) -> Result<Self, DropReason> {
        let last = message.payloads().into_iter().last().ok_or(DropReason::NotAuthentic)?;
        match (last.kind, last.body) {
            (PayloadType::SK, body) => {
                Ok(Self { is_fragment: false, first: last.next, number: 1, total: 1, body })
            }
            (PayloadType::SKF, [a, b, c, d, body @ ..]) => {
                let (number, total) = (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]));
                if number == 0 || number > total || total > MAX_FRAGMENTS {
                    return Err(DropReason::BadFragment);
                }
                Ok(Self { is_fragment: true, first: last.next, number, total, body })
            }
            _ => Err(DropReason::NotAuthentic),
        }
    }
}

/// A message of which not all fragments are here, if there is one; in a box, as most come whole.
#[derive(Debug, Default)]
struct Reassembly(Option<Box<Partial>>);

/// The fragments of one message, as far as they are here. Each was genuine.
#[derive(Debug)]
struct Partial {
    message_id: MessageId,
    begun_at: Instant,
    first: Option<PayloadType>,
    parts: Vec<Option<Vec<u8>>>,
}

impl Reassembly {
    fn deadline(&self) -> Option<Instant> {
        self.0.as_ref()?.begun_at.checked_add(MAX_WAIT)
    }

    /// Whether the same fragment is here already (§2.6: a replay).
    fn has(&self, id: MessageId, sealed: &Sealed<'_>) -> bool {
        self.0.as_ref().is_some_and(|partial| {
            let same = partial.message_id == id && partial.parts.len() == usize::from(sealed.total);
            same && partial.parts.get(usize::from(sealed.number) - 1).is_some_and(Option::is_some)
        })
    }

    fn add(
        &mut self,
        id: MessageId,
        sealed: &Sealed<'_>,
        content: Vec<u8>,
        now: Instant,
    ) -> Result<Opened, DropReason> {
        let total = usize::from(sealed.total);
        // RFC 7383 §2.6: more fragments are the same message cut anew, fewer are of before that.
        let of_before =
            self.0.take().filter(|partial| partial.message_id == id && total <= partial.parts.len());
        let new =
            || Box::new(Partial { message_id: id, begun_at: now, first: None, parts: vec![None; total] });
        let partial = self.0.insert(of_before.unwrap_or_else(new));
        if total < partial.parts.len() {
            return Err(DropReason::BadFragment);
        }
        let part = partial.parts.get_mut(usize::from(sealed.number) - 1).ok_or(DropReason::BadFragment)?;
        *part = Some(content);
        if partial.parts.iter().flatten().map(Vec::len).sum::<usize>() > MAX_REASSEMBLED {
            *self = Self::default();
            return Err(DropReason::BadFragment);
        }
        if sealed.number == 1 {
            partial.first = Some(sealed.first);
        }
        if partial.parts.iter().any(Option::is_none) {
            return Ok(Opened::Fragment);
        }
        let whole = self.0.take().ok_or(DropReason::BadFragment)?;
        let first = whole.first.ok_or(DropReason::BadFragment)?;
        Ok(Opened::Whole(first, whole.parts.into_iter().flatten().flatten().collect()))
    }
}

impl From<ParseError> for DropReason {
    fn from(error: ParseError) -> Self {
        match error {
            ParseError::EarlierVersion => Self::EarlierVersion,
            ParseError::LaterVersion => Self::LaterVersion,
            _ => Self::Malformed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Repeatable;

    fn channel(role: Role) -> Channel {
        Channel::fixture(role, true)
    }

    fn long(length: usize) -> Builder {
        let mut payloads = Builder::new();
        payloads.raw(PayloadType::VENDOR_ID, |body| body.extend((0..length).map(|n| n as u8)));
        payloads
    }

    fn seal(from: &mut Channel, id: u32, payloads: &Builder) -> Vec<Vec<u8>> {
        from.seal(ExchangeType::INFORMATIONAL, false, MessageId(id), payloads, &mut Repeatable::new(1))
    }

    fn open(to: &mut Channel, bytes: &[u8]) -> Result<Option<Vec<u8>>, DropReason> {
        open_at(to, bytes, Instant::now())
    }

    fn open_at(to: &mut Channel, bytes: &[u8], now: Instant) -> Result<Option<Vec<u8>>, DropReason> {
        match to.open(&Message::parse(bytes).unwrap(), now)? {
            Opened::Whole(first, content) => {
                assert_eq!(first, PayloadType::VENDOR_ID);
                Ok(Some(content))
            }
            Opened::Fragment => Ok(None),
        }
    }

    #[test]
    fn fragments_come_in_any_order_and_more_than_once() {
        let (mut a, mut b) = (channel(Role::Initiator), channel(Role::Responder));
        let payloads = long(3000);
        let sealed = seal(&mut a, 0, &payloads);
        assert_eq!(sealed.len(), 3);
        for (index, whole) in [(2, false), (2, false), (0, false), (2, false), (1, true)] {
            let content = open(&mut b, &sealed[index]).unwrap();
            assert_eq!(content.as_deref(), whole.then_some(payloads.bytes()));
        }
    }

    #[test]
    fn fragments_of_another_message_do_not_complete_one() {
        let (mut a, mut b) = (channel(Role::Initiator), channel(Role::Responder));
        let (first, second) = (seal(&mut a, 0, &long(2000)), seal(&mut a, 1, &long(2000)));
        assert_eq!(open(&mut b, &first[0]), Ok(None));
        assert_eq!(open(&mut b, &second[1]), Ok(None));
        assert_eq!(open(&mut b, &second[0]), Ok(Some(long(2000).bytes().to_vec())));
    }

    #[test]
    fn a_message_cut_anew_into_more_fragments_replaces_the_former_ones() {
        let (mut a, mut b) = (channel(Role::Initiator), channel(Role::Responder));
        let (two, three) = (seal(&mut a, 0, &long(2000)), seal(&mut a, 0, &long(3000)));
        assert_eq!(open(&mut b, &two[0]), Ok(None));
        assert_eq!(open(&mut b, &three[0]), Ok(None));
        assert_eq!(open(&mut b, &two[1]), Err(DropReason::BadFragment));
        assert_eq!(open(&mut b, &three[1]), Ok(None));
        assert!(open(&mut b, &three[2]).unwrap().is_some());
    }

    #[test]
    fn a_forged_place_is_not_authentic_and_too_long_a_message_is_not_kept() {
        let (mut a, mut b) = (channel(Role::Initiator), channel(Role::Responder));
        let mut sealed = seal(&mut a, 0, &long(2000));
        sealed[0][HEADER + PAYLOAD_HEADER + 1] = 2;
        assert_eq!(open(&mut b, &sealed[0]), Err(DropReason::NotAuthentic));
        let sealed = seal(&mut a, 1, &long(34_000));
        let results: Vec<_> = sealed.iter().map(|bytes| open(&mut b, bytes)).collect();
        assert!(
            results.contains(&Err(DropReason::BadFragment))
                && !results.iter().any(|r| matches!(r, Ok(Some(_))))
        );
    }

    #[test]
    fn fragments_of_a_message_that_does_not_become_whole_are_forgotten() {
        let (mut a, mut b) = (channel(Role::Initiator), channel(Role::Responder));
        let (sealed, now) = (seal(&mut a, 0, &long(2000)), Instant::now());
        assert_eq!(open_at(&mut b, &sealed[0], now), Ok(None));
        assert_eq!(b.deadline(), Some(now + MAX_WAIT));
        assert_eq!(open_at(&mut b, &sealed[1], now + MAX_WAIT), Ok(None));
        assert!(open_at(&mut b, &sealed[0], now + MAX_WAIT).unwrap().is_some());
        assert_eq!(b.deadline(), None);
    }

    /// RFC 7383 §2.6: it is not even opened, so that a forged copy costs nothing either.
    #[test]
    fn a_fragment_that_is_there_is_not_taken_again() {
        let (mut a, mut b) = (channel(Role::Initiator), channel(Role::Responder));
        let payloads = long(2000);
        let sealed = seal(&mut a, 0, &payloads);
        assert_eq!(open(&mut b, &sealed[0]), Ok(None));
        let mut forged = sealed[0].clone();
        *forged.last_mut().unwrap() ^= 1;
        assert_eq!(open(&mut b, &forged), Ok(None));
        assert_eq!(open(&mut b, &sealed[1]).unwrap().as_deref(), Some(payloads.bytes()));
    }

    #[test]
    fn a_whole_message_takes_the_place_of_fragments() {
        let (mut a, mut b) = (channel(Role::Initiator), channel(Role::Responder));
        let sealed = seal(&mut a, 0, &long(2000));
        assert_eq!(open(&mut b, &sealed[0]), Ok(None));
        a.fragments = false;
        let whole = seal(&mut a, 0, &long(2000));
        assert_eq!(whole.len(), 1);
        assert!(open(&mut b, &whole[0]).unwrap().is_some());
        assert_eq!(b.deadline(), None);
    }

    /// RFC 7383 §2.4.
    #[test]
    fn fragments_that_were_not_agreed_on_are_not_taken() {
        let (mut a, mut b) = (channel(Role::Initiator), Channel::fixture(Role::Responder, false));
        for fragment in seal(&mut a, 0, &long(2000)) {
            assert_eq!(open(&mut b, &fragment), Err(DropReason::BadFragment));
        }
        assert_eq!(b.deadline(), None);
    }

    /// RFC 7383 §2.6.1.
    #[test]
    fn the_first_fragment_alone_asks_for_an_answer_again() {
        let (mut a, mut b) = (channel(Role::Initiator), channel(Role::Responder));
        let sealed = seal(&mut a, 0, &long(2000));
        for bytes in &sealed {
            open(&mut b, bytes).unwrap();
        }
        let is_first = |bytes: &[u8]| b.is_genuine_first(&Message::parse(bytes).unwrap());
        assert!(is_first(&sealed[0]) && !is_first(&sealed[1]));
        let mut forged = sealed[0].clone();
        *forged.last_mut().unwrap() ^= 1;
        assert!(!is_first(&forged));
        assert!(is_first(&seal(&mut a, 0, &long(10))[0]));
    }

    /// RFC 7383 §2.5: the type of the first payload in the first fragment, and zero in the others.
    #[test]
    fn the_first_fragment_alone_says_what_comes_first() {
        let mut a = channel(Role::Initiator);
        let of = |sealed: &Vec<u8>| (sealed[16], sealed[HEADER]);
        let sealed = seal(&mut a, 0, &long(3000));
        let types: Vec<_> = sealed.iter().map(of).collect();
        let (kind, first) = (PayloadType::SKF.0, PayloadType::VENDOR_ID.0);
        assert_eq!(types, [(kind, first), (kind, 0), (kind, 0)]);
        assert!(
            sealed.iter().all(|bytes| bytes[..16] == sealed[0][..16] && bytes[17..24] == sealed[0][17..24])
        );
    }

    #[test]
    fn what_an_end_has_sent_itself_is_not_from_its_peer() {
        let mut a = channel(Role::Initiator);
        let sealed = seal(&mut a, 0, &long(10));
        let message = Message::parse(&sealed[0]).unwrap();
        assert!(!a.is_from_peer(&message.header()));
        assert!(channel(Role::Responder).is_from_peer(&message.header()));
        assert_eq!(open(&mut a, &sealed[0]), Err(DropReason::NotAuthentic));
    }
}
