//! What happens in a simulation, and what has to hold.

use std::rc::Rc;
use std::time::Duration;

use controller::Error;
use fleet::document::Serial;
use fleet::exchange::Question;
use fleet::fleet::Notices;
use tokio::task::{LocalSet, spawn_local};

use crate::administrator;
use crate::controllers::{Controllers, Load};
use crate::figures::{Figures, Outage, Work};
use crate::identity::{self, SITE, TOKEN, member, name, signer};
use crate::sites::{live, terms};
use crate::world::World;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const DAY: f64 = 24.0 * 3600.0;
/// From the beginning to when spokes begin: hubs are members by then.
const HUBS_FIRST: Duration = Duration::from_secs(10);
/// Who was cut off from controllers has noticed it after so long.
const NOTICED: Duration = Duration::from_secs(420);

/// What is simulated.
#[derive(Debug, Clone)]
pub struct Options {
    /// How many sites: at least 3.
    pub sites: usize,
    /// How many controllers.
    pub controllers: usize,
    /// Within which time all sites begin to enrol.
    pub storm: Duration,
    /// How long nothing happens.
    pub idle: Duration,
    /// Times in which neither controllers nor store are there.
    pub outages: Vec<Duration>,
    /// What is drawn.
    pub seed: u64,
}

/// A promise that was not kept.
#[derive(Debug)]
pub struct Broken(pub String);

impl From<Error> for Broken {
    fn from(error: Error) -> Self {
        Broken(error.to_string())
    }
}

/// Simulates a fleet. `tell`: hears what has happened so far, since thousands of sites take an hour.
///
/// # Errors
/// If something does not hold that has to: a site could not enrol, is locked out, has lost a peer, went back to an older
/// document, or still has a peer that was revoked.
pub fn run(options: &Options, tell: &dyn Fn(&str)) -> Result<Figures, Broken> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.map_err(|error| Broken(error.to_string()))?;
    LocalSet::new().block_on(&runtime, async { Story::begin(options, tell).await?.go_on().await })
}

struct Story<'o> {
    options: &'o Options,
    tell: &'o dyn Fn(&str),
    world: Rc<World>,
    figures: Figures,
    /// Sites that were revoked.
    revoked: usize,
}

/// What was counted at one moment.
struct Count {
    loads: Vec<Load>,
    to_controllers: u64,
    to_peers: u64,
}

impl<'o> Story<'o> {
    async fn begin(options: &'o Options, tell: &'o dyn Fn(&str)) -> Result<Story<'o>, Broken> {
        let controllers = Controllers::new(options.controllers);
        controllers.begin(administrator::first(controllers.about())).await?;
        controllers.start().await?;
        let one = controllers.one().ok_or_else(|| Broken("no controller runs".to_owned()))?;
        let network = one.fleet().network();
        let world = Rc::new(World::new(options.seed, network, controllers, options.sites));
        let figures = Figures {
            sites: options.sites,
            hubs: identity::hubs(options.sites),
            controllers: options.controllers,
            storm: options.storm,
            ..Figures::default()
        };
        Ok(Story { options, tell, world, figures, revoked: 0 })
    }

    async fn go_on(mut self) -> Result<Figures, Broken> {
        self.all_enrol().await?;
        (self.tell)("all are members");
        self.nothing_happens().await?;
        (self.tell)("nothing has happened for a while");
        self.one_is_revoked().await?;
        (self.tell)("one is revoked");
        for length in self.options.outages.clone() {
            self.nobody_answers(length).await?;
            (self.tell)("all are back after an outage");
        }
        self.log_is_whole().await?;
        self.figures.agent = self.world.longest.get();
        Ok(self.figures)
    }

    fn count(&self) -> Count {
        let (to_controllers, to_peers) = (self.world.to_controllers.get(), self.world.to_peers.get());
        Count { loads: self.world.controllers.loads(), to_controllers, to_peers }
    }

    /// The work of the busiest controller since then.
    fn work_since(&self, before: &Count) -> Work {
        let loads = self.world.controllers.loads();
        let work = |(now, then): (&Load, &Load)| Work {
            requests: now.requests - then.requests,
            octets: now.octets - then.octets,
            processor: now.processor.saturating_sub(then.processor),
        };
        let all: Vec<Work> = loads.iter().zip(&before.loads).map(work).collect();
        Work {
            requests: all.iter().map(|work| work.requests).max().unwrap_or_default(),
            octets: all.iter().map(|work| work.octets).max().unwrap_or_default(),
            processor: all.iter().map(|work| work.processor).max().unwrap_or_default(),
        }
    }

    /// Lets time pass until all sites are so.
    async fn until_all(
        &self,
        what: &str,
        patience: Duration,
        is_so: impl Fn(usize, &crate::world::Seen) -> bool,
    ) -> Result<(), Broken> {
        let end = self.world.now() + patience;
        let mut before = None;
        loop {
            if let Some(why) = self.world.broken.borrow().first() {
                return Err(Broken(why.clone()));
            }
            let left: Vec<usize> = {
                let seen = self.world.seen.borrow();
                (0..)
                    .zip(seen.iter())
                    .filter(|(number, seen)| !is_so(*number, seen))
                    .map(|(n, _)| n)
                    .collect()
            };
            if left.is_empty() {
                return Ok(());
            }
            if before != Some(left.len()) {
                let files: u64 = self.changes().iter().sum();
                (self.tell)(&format!("{what}: {} sites are left, {files} files of peers so far", left.len()));
            }
            before = Some(left.len());
            if self.world.now() > end {
                let first: Vec<String> = left
                    .iter()
                    .take(5)
                    .map(|number| format!("{number} {:?}", self.world.seen.borrow()[*number]))
                    .collect();
                return Err(Broken(format!("{what}: not at {} sites ({})", left.len(), first.join(", "))));
            }
            tokio::time::sleep(SECOND / 2).await;
        }
    }

    fn serial(&self) -> Result<u64, Broken> {
        let serial = self.world.controllers.one().and_then(|one| one.serial());
        serial.map(|Serial(number)| number).ok_or_else(|| Broken("no controller has a document".to_owned()))
    }

    async fn all_enrol(&mut self) -> Result<(), Broken> {
        let world = &self.world;
        let (sites, hubs) = (self.options.sites, self.figures.hubs);
        let one = world.controllers.one().ok_or_else(|| Broken("no controller runs".to_owned()))?;
        let expires = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let expires = expires.unwrap_or_default().as_secs() + 24 * 3600;
        for number in 0..sites {
            one.invite("ada", signer(TOKEN, number).public(), terms(number, sites), expires).await?;
        }
        let (before, begin) = (self.count(), world.now());
        let mut random = fastrand::Rng::with_seed(self.options.seed);
        for number in 0..sites {
            let world = Rc::clone(world);
            let after = match number < hubs {
                true => Duration::ZERO,
                false => HUBS_FIRST + self.options.storm.mul_f64(random.f64()),
            };
            spawn_local(async move {
                tokio::time::sleep(after).await;
                live(world, number, sites, expires).await;
            });
        }
        // An administrator signs every minute, and a delegate once between two documents.
        let mut left = sites;
        tokio::time::sleep(HUBS_FIRST / 2).await;
        left -= administrator::approve_all(&one).await?;
        tokio::time::sleep(HUBS_FIRST).await;
        left -= administrator::delegate(&one).await?;
        let end = begin + self.options.storm + 20 * MINUTE;
        while left > 0 && world.now() < end {
            tokio::time::sleep(MINUTE).await;
            left -= administrator::approve_all(&one).await?;
            (self.tell)(&format!("{} of {sites} are let in", sites - left));
        }
        let serial = self.serial()?;
        let has_all = |_: usize, seen: &crate::world::Seen| seen.enrolled.is_some() && seen.serial >= serial;
        self.until_all("all are members", 10 * MINUTE, has_all).await?;
        let enrolled = world.seen.borrow().iter().filter_map(|seen| seen.enrolled).max();
        self.figures.all_in = enrolled.unwrap_or_default().saturating_sub(begin);
        self.figures.documents = serial - 1;
        self.figures.enrolling = self.work_since(&before);
        let who = member(sites - 1, sites).name;
        let whole = one.fleet().news_for(&who, &fleet::news::Have::default(), None, Notices::All);
        self.figures.document = serde_json::to_vec(&whole).map_or(0, |text| text.len() as u64);
        Ok(())
    }

    async fn nothing_happens(&mut self) -> Result<(), Broken> {
        // After what the storm has left.
        tokio::time::sleep(2 * MINUTE).await;
        let (before, changes) = (self.count(), self.changes());
        tokio::time::sleep(self.options.idle).await;
        let now = self.count();
        let times = DAY / self.options.idle.as_secs_f64();
        let a_day = |count: u64| (count as f64 * times) as u64;
        let of_site = |count: u64| a_day(count) / self.options.sites as u64;
        self.figures.idle_controllers = of_site(now.to_controllers - before.to_controllers);
        self.figures.idle_peers = of_site(now.to_peers - before.to_peers);
        let work = self.work_since(&before);
        self.figures.idle = Work {
            requests: a_day(work.requests),
            octets: a_day(work.octets),
            processor: work.processor.mul_f64(times),
        };
        self.figures.connections = now.loads.iter().map(|load| load.connections).max().unwrap_or_default();
        self.unchanged(&changes, "while nothing happened")
    }

    fn changes(&self) -> Vec<u64> {
        self.world.seen.borrow().iter().map(|seen| seen.changes).collect()
    }

    fn unchanged(&self, before: &[u64], when: &str) -> Result<(), Broken> {
        let now = self.changes();
        match before.iter().zip(&now).position(|(before, now)| before != now) {
            Some(number) => Err(Broken(format!("the gateway of site {number} was changed {when}"))),
            None => Ok(()),
        }
    }

    /// Who is revoked next: the last spoke that was not.
    fn next_to_go(&mut self) -> usize {
        self.revoked += 1;
        let number = self.options.sites - self.revoked;
        let [address, network] = match identity::address(number) {
            std::net::IpAddr::V6(address) => {
                let [_, high, low, ..] = address.segments();
                let network = std::net::Ipv6Addr::new(0xfd00, high, low, 0, 0, 0, 0, 0);
                [format!("\"{address}/128\""), format!("\"{network}/48\"")]
            }
            std::net::IpAddr::V4(_) => Default::default(),
        };
        let peer = format!("\"{}\"", member(number, self.options.sites).name);
        self.world.watched.replace(vec![address, network, peer]);
        self.world.seen.borrow_mut().iter_mut().for_each(|seen| seen.out = None);
        number
    }

    async fn one_is_revoked(&mut self) -> Result<(), Broken> {
        // Some reach no controller any more, and hear of it from their hubs.
        let cut = (self.figures.hubs..self.options.sites).step_by(100);
        self.world.cut.replace(cut.collect());
        tokio::time::sleep(NOTICED).await;
        let number = self.next_to_go();
        let one = self.world.controllers.one().ok_or_else(|| Broken("no controller runs".to_owned()))?;
        let who = member(number, self.options.sites).name;
        let news = administrator::revocation(&one.fleet(), &who).unwrap_or_default();
        let (before, signed) = (self.count(), self.world.now());
        let published = spawn_local(async move { one.publish("ada", news).await });
        self.until_all("the revoked site is out", 5 * MINUTE, |_, seen| seen.out.is_some()).await?;
        published.await.map_err(|error| Broken(error.to_string()))??;
        let mut out: Vec<Duration> =
            self.world.seen.borrow().iter().filter_map(|seen| seen.out?.checked_sub(signed)).collect();
        out.sort();
        let at = |part: f64| out[((out.len() - 1) as f64 * part) as usize];
        self.figures.out = [at(0.5), at(0.99), at(1.0)];
        self.figures.change = self.work_since(&before);
        let now = self.count();
        let octets = now.to_controllers + now.to_peers - before.to_controllers - before.to_peers;
        self.figures.change_site = octets / self.options.sites as u64;
        self.world.cut.borrow_mut().clear();
        tokio::time::sleep(2 * MINUTE).await;
        Ok(())
    }

    async fn nobody_answers(&mut self, length: Duration) -> Result<(), Broken> {
        let (before, changes) = (self.count(), self.changes());
        let one = self.world.controllers.one().ok_or_else(|| Broken("no controller runs".to_owned()))?;
        // What an administrator signs meanwhile, away from all controllers.
        let number = self.next_to_go();
        let who = member(number, self.options.sites).name;
        let news = administrator::revocation(&one.fleet(), &who).unwrap_or_default();
        drop(one);
        self.world.controllers.end();
        tokio::time::sleep(length).await;
        self.unchanged(&changes, "while no controller answered")?;
        let hours = length.as_secs_f64() / 3600.0;
        let peers = (self.count().to_peers - before.to_peers) as f64 / self.options.sites as f64 / hours;
        let (before, back) = (self.count(), self.world.now());
        self.world.controllers.start().await?;
        let one = self.world.controllers.one().ok_or_else(|| Broken("no controller runs".to_owned()))?;
        one.publish("ada", news).await?;
        let serial = self.serial()?;
        // Those that were revoked before have no peers any more, and are not asked about.
        let is_back = |site: usize, seen: &crate::world::Seen| {
            let has_it = seen.out.is_some() && seen.serial >= serial;
            site > number || (has_it && seen.answered.is_some_and(|at| at > back))
        };
        self.until_all("all are back after an outage", 30 * MINUTE, is_back).await?;
        let asked = self.world.asked.borrow();
        let peak = asked.range(back.as_secs()..).map(|(_, count)| *count).max().unwrap_or_default();
        let out = self.world.seen.borrow().iter().filter_map(|seen| seen.out).max();
        self.figures.outages.push(Outage {
            length,
            peers_per_hour: peers as u64,
            back: out.unwrap_or_default().saturating_sub(back),
            peak,
            work: self.work_since(&before),
        });
        Ok(())
    }

    /// Each invitation, application and document is in the log, and it was not written anew.
    async fn log_is_whole(&mut self) -> Result<(), Broken> {
        let one = self.world.controllers.one().ok_or_else(|| Broken("no controller runs".to_owned()))?;
        let (mut head, mut count) = (None, 0);
        loop {
            let texts = one.log(count + 1).await?;
            let read = controller::log::verify(head, texts.iter().map(String::as_str));
            let (records, last) = read.map_err(|error| Broken(error.to_string()))?;
            if records.is_empty() {
                break;
            }
            (head, count) = (last, count + records.len() as u64);
        }
        let sites = self.options.sites as u64;
        let least = 2 * sites + self.serial()?;
        if count < least {
            return Err(Broken(format!("the log has {count} records, and not {least}")));
        }
        self.figures.backup = self.world.controllers.backup().await?.len() as u64;
        let fleet = one.fleet();
        let nobody = Question { have: fleet.have(), since: None };
        let answer = one.answer(&name("nobody"), &nobody, Duration::ZERO).await;
        if answer.news.document.is_some() || fleet.sites().len() as u64 != sites {
            return Err(Broken(format!("{} of {sites} sites are in the document", fleet.sites().len())));
        }
        let own = signer(SITE, 0).public();
        match fleet.site(&member(0, self.options.sites).name) {
            Some(site) if site.member.identity == own => Ok(()),
            _ => Err(Broken("the first site is another one".to_owned())),
        }
    }
}
