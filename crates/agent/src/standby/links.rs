//! The links that both gateways of a site are on: signs of life, in datagrams between addresses that each has to itself.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fleet::standby::BEAT_PORT;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::event::Event;

/// The longest sign of life, in octets.
const LONGEST: usize = 4096;
/// How often it is looked whether this machine has more of the addresses.
const LOOK: Duration = Duration::from_secs(2);

/// Sockets at those of the addresses that are this machine's; the others are the other one's.
pub(super) struct Links {
    gateways: Vec<IpAddr>,
    own: Vec<(IpAddr, Arc<UdpSocket>)>,
    readers: Vec<AbortHandle>,
    events: mpsc::Sender<Event>,
    looked: Instant,
}

impl Links {
    pub(super) fn open(gateways: &[IpAddr], events: mpsc::Sender<Event>) -> Result<Self, String> {
        let (own, readers, looked) = (Vec::new(), Vec::new(), Instant::now());
        let mut links = Links { gateways: gateways.to_vec(), own, readers, events, looked };
        links.look().map_err(|(address, error)| format!("{address}, UDP port {BEAT_PORT}: {error}"))?;
        let few = match links.own.len() {
            0 => "none",
            all if all == gateways.len() => "all",
            _ => return Ok(links),
        };
        Err(format!(
            "of `gateways` in [standby] {few} are addresses of this machine: one at least has to be, and one the other's"
        ))
    }

    /// Opens sockets at addresses that this machine has had for a moment: a link may come later than the agent.
    fn look(&mut self) -> Result<(), (IpAddr, std::io::Error)> {
        self.looked = Instant::now();
        for address in &self.gateways {
            if self.own.iter().any(|(own, _)| own == address) {
                continue;
            }
            match bind(*address) {
                Ok(socket) => {
                    let socket = Arc::new(socket);
                    let reader = read(Arc::clone(&socket), self.gateways.clone(), self.events.clone());
                    self.readers.push(tokio::spawn(reader).abort_handle());
                    self.own.push((*address, socket));
                }
                Err(error) if error.kind() == std::io::ErrorKind::AddrNotAvailable => {}
                Err(error) => return Err((*address, error)),
            }
        }
        Ok(())
    }

    /// Sends to the other one on every link. What does not leave is missed soon enough.
    pub(super) fn send(&mut self, bytes: &[u8]) {
        if self.looked.elapsed() > LOOK {
            let _ = self.look();
        }
        for to in &self.gateways {
            let nearest = self.own.iter().max_by_key(|(own, _)| common(*own, *to));
            if let Some((_, socket)) = nearest.filter(|(own, _)| own != to) {
                let _ = socket.try_send_to(bytes, SocketAddr::new(*to, BEAT_PORT));
            }
        }
    }
}

fn bind(address: IpAddr) -> std::io::Result<UdpSocket> {
    let socket = std::net::UdpSocket::bind((address, BEAT_PORT))?;
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket)
}

impl Drop for Links {
    fn drop(&mut self) {
        self.readers.iter().for_each(AbortHandle::abort);
    }
}

async fn read(socket: Arc<UdpSocket>, gateways: Vec<IpAddr>, events: mpsc::Sender<Event>) {
    let mut buffer = vec![0; LONGEST];
    loop {
        let Ok((length, from)) = socket.recv_from(&mut buffer).await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        // Signatures of others are not even looked at. What there is no room for is missed soon enough.
        if gateways.contains(&from.ip()) {
            let _ = events.try_send(Event::Beat(buffer[..length].to_vec()));
        }
    }
}

/// How many bits two addresses have in common at their beginning: those of one link have most.
fn common(one: IpAddr, other: IpAddr) -> u32 {
    match (one, other) {
        (IpAddr::V6(one), IpAddr::V6(other)) => (u128::from(one) ^ u128::from(other)).leading_zeros(),
        (IpAddr::V4(one), IpAddr::V4(other)) => (u32::from(one) ^ u32::from(other)).leading_zeros(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_link_have_most_in_common() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let inside = common(address("2001:db8:a::11"), address("2001:db8:a::12"));
        assert!(inside > common(address("2001:db8:fa::11"), address("2001:db8:a::12")));
        assert_eq!(common(address("192.0.2.1"), address("2001:db8:a::12")), 0);
    }
}
