//! Who has connected to the server, and how many may: those who have not asked yet wait without a thread of their own, and
//! requests wait for one of a few.
//!
//! A client is a network: a /64, or an address of IPv4. Where it has all its places, its oldest connection that has not
//! asked gives way to its next one; where all places are taken, the oldest one of the network that has most.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

/// Connections that have not asked yet, of all networks.
pub(super) const MAX_WAITING: usize = 2048;
/// Of one network; and so many of its requests that wait to be answered.
pub(super) const MAX_OF_NETWORK: usize = 1024;
/// Requests that are answered at once: each has a thread.
pub(super) const MAX_ANSWERED: usize = 32;
/// Of one network.
pub(super) const MAX_ANSWERED_OF_NETWORK: usize = 8;
/// Who has not asked by then is closed, however many octets he has sent.
pub(super) const HEAD_TIME: Duration = Duration::from_secs(30);

/// Which connection; they are numbered in the order in which they came, from 1 on.
pub(super) type Number = u64;

/// What counts as one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Network(Ipv6Addr);

impl Network {
    pub(super) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Network(address.to_ipv6_mapped()),
            IpAddr::V6(address) => Network(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        }
    }
}

/// One who has not asked yet.
pub(super) struct Client<C> {
    pub(super) connection: C,
    pub(super) network: Network,
    /// What has arrived of the request.
    pub(super) head: Vec<u8>,
    pub(super) waker: Waker,
    until: Instant,
}

/// Those who have not asked yet.
pub(super) struct Waiting<C> {
    clients: BTreeMap<Number, Client<C>>,
    /// How many of each network.
    counts: HashMap<Network, usize>,
    last: Number,
}

impl<C> Waiting<C> {
    pub(super) fn new() -> Self {
        Waiting { clients: BTreeMap::new(), counts: HashMap::new(), last: 0 }
    }

    /// One more has connected; another one may have to go.
    pub(super) fn admit(
        &mut self,
        now: Instant,
        network: Network,
        connection: C,
        ready: &Arc<Ready>,
    ) -> Number {
        let full = if self.count(network) >= MAX_OF_NETWORK {
            Some(network)
        } else if self.clients.len() >= MAX_WAITING {
            self.largest()
        } else {
            None
        };
        if let Some(oldest) = full.and_then(|network| self.oldest(network)) {
            self.remove(oldest);
        }
        *self.counts.entry(network).or_default() += 1;
        self.last += 1;
        let (number, until) = (self.last, now + HEAD_TIME);
        let client = Client { connection, network, head: Vec::new(), waker: ready.waker(number), until };
        self.clients.insert(number, client);
        number
    }

    pub(super) fn get_mut(&mut self, number: Number) -> Option<&mut Client<C>> {
        self.clients.get_mut(&number)
    }

    pub(super) fn remove(&mut self, number: Number) -> Option<Client<C>> {
        let client = self.clients.remove(&number)?;
        if let Some(count) = self.counts.get_mut(&client.network) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&client.network);
            }
        }
        Some(client)
    }

    /// When the time of the first is over.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.clients.first_key_value().map(|(_, client)| client.until)
    }

    /// Closes those whose time is over.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some((&number, client)) = self.clients.first_key_value()
            && client.until <= now
        {
            self.remove(number);
        }
    }

    fn count(&self, network: Network) -> usize {
        self.counts.get(&network).copied().unwrap_or(0)
    }

    fn oldest(&self, network: Network) -> Option<Number> {
        let is_of_it = |(_, client): &(&Number, &Client<C>)| client.network == network;
        self.clients.iter().find(is_of_it).map(|(number, _)| *number)
    }

    fn largest(&self) -> Option<Network> {
        self.counts.iter().max_by_key(|(_, count)| **count).map(|(network, _)| *network)
    }
}

/// Connections of which there is news, for the one thread that looks after them.
#[derive(Default)]
pub(super) struct Ready {
    numbers: Mutex<Vec<Number>>,
    some: Condvar,
}

/// Says that there is news of one.
struct News {
    number: Number,
    ready: Arc<Ready>,
}

impl Wake for News {
    fn wake(self: Arc<Self>) {
        self.ready.add(self.number);
    }
}

impl Ready {
    pub(super) fn waker(self: &Arc<Self>, number: Number) -> Waker {
        Waker::from(Arc::new(News { number, ready: Arc::clone(self) }))
    }

    pub(super) fn add(&self, number: Number) {
        lock(&self.numbers).push(number);
        self.some.notify_one();
    }

    /// Those of which there is news; waits for some until then.
    pub(super) fn take(&self, until: Option<Instant>) -> Vec<Number> {
        let mut numbers = lock(&self.numbers);
        while numbers.is_empty() {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            numbers = match left {
                None => self.some.wait(numbers).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => break,
                Some(left) => self.some.wait_timeout(numbers, left).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
        std::mem::take(&mut numbers)
    }
}

/// Requests that wait for a thread.
pub(super) struct Requests<R> {
    queue: Mutex<Queue<R>>,
    some: Condvar,
}

struct Queue<R> {
    waiting: VecDeque<(Network, R)>,
    /// Whose are being answered.
    answered: Vec<Network>,
}

impl<R> Requests<R> {
    pub(super) fn new() -> Self {
        let queue = Queue { waiting: VecDeque::new(), answered: Vec::new() };
        Requests { queue: Mutex::new(queue), some: Condvar::new() }
    }

    /// One more. It is dropped where its network has too many already.
    pub(super) fn add(&self, network: Network, request: R) {
        let mut queue = lock(&self.queue);
        let alike = queue.waiting.iter().filter(|(of, _)| *of == network).count();
        if alike < MAX_OF_NETWORK && queue.waiting.len() < MAX_WAITING {
            queue.waiting.push_back((network, request));
            self.some.notify_one();
        }
    }

    /// The next one, of a network of which not too many are being answered: say [`Requests::done`] afterwards.
    pub(super) fn next(&self) -> (Network, R) {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(next) = queue.next() {
                return next;
            }
            queue = self.some.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// One of this network has been answered.
    pub(super) fn done(&self, network: Network) {
        let mut queue = lock(&self.queue);
        if let Some(at) = queue.answered.iter().position(|of| *of == network) {
            queue.answered.swap_remove(at);
        }
        self.some.notify_one();
    }
}

impl<R> Queue<R> {
    fn next(&mut self) -> Option<(Network, R)> {
        let may = |network: &Network| {
            self.answered.iter().filter(|of| *of == network).count() < MAX_ANSWERED_OF_NETWORK
        };
        let at = self.waiting.iter().position(|(network, _)| may(network))?;
        let next = self.waiting.remove(at)?;
        self.answered.push(next.0);
        Some(next)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(number: u16) -> Network {
        Network::of(Ipv6Addr::new(0x2001, 0xdb8, 0, number, 0, 0, 0, 1).into())
    }

    #[test]
    fn a_client_is_a_64_or_an_address_of_ipv4() {
        let of = |text: &str| Network::of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:0:0:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"));
    }

    #[test]
    fn of_a_client_with_many_unfinished_requests_the_oldest_gives_way_and_others_stay() {
        let (now, ready) = (Instant::now(), Arc::new(Ready::default()));
        let mut waiting = Waiting::new();
        let other = waiting.admit(now, network(1), (), &ready);
        let first = waiting.admit(now, network(2), (), &ready);
        let mut last = first;
        for _ in 0..5000 {
            last = waiting.admit(now, network(2), (), &ready);
        }
        assert_eq!(waiting.clients.len(), MAX_OF_NETWORK + 1);
        let mut is_there = |number| waiting.get_mut(number).is_some();
        assert_eq!([other, first, last].map(&mut is_there), [true, false, true]);
    }

    #[test]
    fn of_all_the_client_with_most_gives_way() {
        let (now, ready) = (Instant::now(), Arc::new(Ready::default()));
        let mut waiting = Waiting::new();
        let few: Vec<_> = (0..5).map(|_| waiting.admit(now, network(0), (), &ready)).collect();
        for number in 1..5000u16 {
            waiting.admit(now, network(1 + number % 4), (), &ready);
        }
        assert_eq!(waiting.clients.len(), MAX_WAITING);
        assert!(few.into_iter().all(|number| waiting.get_mut(number).is_some()));
    }

    #[test]
    fn who_does_not_ask_in_time_is_closed() {
        let (now, ready) = (Instant::now(), Arc::new(Ready::default()));
        let mut waiting = Waiting::new();
        assert_eq!(waiting.deadline(), None);
        let early = waiting.admit(now, network(1), (), &ready);
        let late = waiting.admit(now + Duration::from_secs(1), network(1), (), &ready);
        waiting.get_mut(early).unwrap().head.extend_from_slice(b"GET / HTTP/1.1\r\nA: ");
        assert_eq!(waiting.deadline(), Some(now + HEAD_TIME));
        waiting.expire(now + HEAD_TIME);
        assert_eq!(waiting.count(network(1)), 1);
        assert!(waiting.get_mut(early).is_none() && waiting.get_mut(late).is_some());
    }

    #[test]
    fn requests_of_a_client_that_is_slow_leave_threads_for_others() {
        let requests = Requests::new();
        for number in 0..5000 {
            requests.add(network(1), number);
        }
        assert_eq!(lock(&requests.queue).waiting.len(), MAX_OF_NETWORK);
        for number in 0..MAX_ANSWERED_OF_NETWORK {
            assert_eq!(requests.next(), (network(1), number));
        }
        assert_eq!(lock(&requests.queue).next(), None, "no more of this one");
        requests.add(network(2), 7);
        assert_eq!(requests.next(), (network(2), 7));
        requests.done(network(1));
        assert_eq!(requests.next(), (network(1), MAX_ANSWERED_OF_NETWORK));
    }

    #[test]
    fn news_comes_once_and_is_waited_for() {
        let ready = Arc::new(Ready::default());
        assert!(ready.take(Some(Instant::now())).is_empty());
        let waker = ready.waker(7);
        let other = std::thread::spawn(move || waker.wake());
        assert_eq!(ready.take(None), [7]);
        other.join().unwrap();
        assert!(ready.take(Some(Instant::now())).is_empty());
    }
}
