//! What each of the tests does.

use std::time::Duration;

use super::latency;
use super::scene::GatewayScene;
use super::test::{Family, Test};
use crate::comparison::measure::{DRAIN, LASTS, START};
use crate::comparison::search::{Length, Trial, highest_without_loss};
use crate::comparison::statistics::quantile;
use crate::experiment::run::Labs;
use crate::experiment::scene::Outcome;
use crate::nat::packets;
use lab::Error;
use lab::topology::Site;
use lab::traffic::{Hosts as _, TcpOptions, UdpOptions, UdpStream, tcp};

/// Timestamps, which every segment has.
const TCP_OPTIONS: u32 = 12;

/// How long each test takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lengths {
    /// Seconds of TCP.
    pub(super) tcp: u32,
    pub(super) packets: Duration,
    /// A trial of a search, and the one that shows that the rate lasts.
    pub(super) trial: Duration,
    pub(super) lasts: Duration,
    pub(super) echoes: u32,
    pub(super) connections: u32,
}

impl Lengths {
    pub(super) fn of(seconds: u32, quick: bool) -> Self {
        let quicker = |usual: Duration, part: u32| if quick { usual / part } else { usual };
        Self {
            tcp: seconds,
            packets: quicker(Duration::from_millis(100) * seconds.min(5), 5),
            trial: quicker(Duration::from_millis(300), 10),
            lasts: quicker(LASTS, 10),
            echoes: if quick { 50 } else { 2_000 * seconds.min(10) },
            connections: if quick { 20 } else { 500 * seconds.min(10) },
        }
    }
}

impl Test {
    /// Carries it out.
    pub(super) fn run(
        self,
        scene: &GatewayScene,
        family: Family,
        lengths: Lengths,
        labs: &Labs,
    ) -> Result<Outcome, Error> {
        let ipv4 = family == Family::Ipv4;
        let flow = TcpOptions { seconds: lengths.tcp, ipv4, ..TcpOptions::default() };
        match self {
            Self::Tcp => transfer(scene, flow, None),
            Self::Window(bytes) => transfer(scene, TcpOptions { window: Some(bytes), ..flow }, None),
            Self::Segments(frame) => {
                let segment = family.segment(frame);
                transfer(scene, TcpOptions { segment: Some(segment), ..flow }, Some(segment - TCP_OPTIONS))
            }
            Self::Packets(frame) => {
                let size = family.payload(frame) as usize;
                let rate = packets::carried_for(scene, ipv4, size, lengths.packets)?;
                Ok(Outcome::new([("thousand_s", rate / 1e3)], ""))
            }
            Self::WithoutLoss(frame) => without_loss(scene, family, frame, lengths, labs),
            Self::Echo(frame) => {
                let (target, size) = (scene.address(Site::B, ipv4), family.payload(frame) as usize);
                let times = on_client(scene, || latency::echoes(target, size, lengths.echoes))??;
                Ok(times_of(&times, u64::from(lengths.echoes)))
            }
            Self::Connect => {
                let target = scene.address(Site::B, ipv4);
                let times = on_client(scene, || latency::connections(target, lengths.connections))?;
                Ok(times_of(&times, u64::from(lengths.connections)))
            }
        }
    }
}

fn transfer(scene: &GatewayScene, options: TcpOptions, payload: Option<u32>) -> Result<Outcome, Error> {
    let report = tcp(scene, options)?;
    let segments = payload.map_or(f64::NAN, |payload| report.bits_per_second / 8.0 / f64::from(payload));
    let values = [
        ("mbit_s", report.bits_per_second / 1e6),
        ("thousand_s", segments / 1e3),
        ("retransmits", report.retransmits as f64),
    ];
    Ok(Outcome::new(values, ""))
}

/// RFC 2544 section 26.1.
fn without_loss(
    scene: &GatewayScene,
    family: Family,
    frame: u32,
    lengths: Lengths,
    labs: &Labs,
) -> Result<Outcome, Error> {
    let found = highest_without_loss(START, None, |rate, length| {
        if labs.stopped() {
            return Err(Error::Usage("interrupted".into()));
        }
        let duration = match length {
            Length::Short => lengths.trial,
            Length::Long => lengths.lasts,
        };
        let (ipv4, size) = (family == Family::Ipv4, family.payload(frame) as usize);
        let options = UdpOptions { rate: rate as u32, size, duration, ipv4, ..UdpOptions::default() };
        let report = UdpStream::start(scene, options)?.finish(DRAIN)?;
        let rate = report.sent.sent as f64 / (report.sent.took_us.max(1) as f64 / 1e6);
        Ok(Trial { rate, lost: report.lost + report.sent.refused })
    })?;
    Ok(Outcome::new([("thousand_s", found.rate / 1e3), ("limited", f64::from(u8::from(found.limited)))], ""))
}

/// Runs something in the client's network namespace.
fn on_client<T: Send>(scene: &GatewayScene, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
    Ok(linux::netns::Namespace::open(scene.node(Site::A).name())?.run(work)?)
}

fn times_of(times_us: &[f64], sent: u64) -> Outcome {
    let at = |part| quantile(times_us, part).unwrap_or(f64::NAN);
    let lost = sent.saturating_sub(times_us.len() as u64) as f64;
    Outcome::new([("p50_us", at(0.5)), ("p99_us", at(0.99)), ("lost", lost)], "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_has_its_time_and_silence_is_no_time() {
        let outcome = times_of(&[3.0, 1.0, 2.0], 4);
        assert_eq!((outcome.values["p50_us"], outcome.values["lost"]), (2.0, 1.0));
        assert_eq!(times_of(&[], 4).values.get("p50_us"), None);
    }
}
