//! Several controllers on a cluster of etcd that loses members, while controllers are killed, too (in the manner of Jepsen):
//! what people and sites were told has happened, once, and is in the log. What they do is here, what must hold in `judge`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use controller::{Controller, Error, Waiting, begin};
use fleet::enrolment::{self, Invitation, State};
use fleet::fleet::{Fleet, Notices};
use fleet::key::Digest;
use fleet::news::{News, Refusal};
use fleet::signed::Signed;
use fleet::site::Site;
use lab::etcd::Cluster;
use lab::scale::scaled;
use linux::netns;
use store::{Etcd, EtcdOptions, Key};
use tokio::sync::{mpsc, watch};
use tokio::task::{LocalSet, spawn_local};

use crate::judge::judge;
use crate::scene::*;

const CONTROLLERS: usize = 3;
const CLIENTS: usize = 6;
/// Hardly time enough for an election.
const PATIENCE: Duration = Duration::from_millis(1500);
/// Long for anything that comes in the end.
const FOR_SURE: Duration = Duration::from_secs(60);

/// What was told.
#[derive(Default)]
pub(crate) struct Record {
    /// Invitations that were acknowledged, by the names of their sites.
    pub(crate) invited: Vec<String>,
    /// Of each site those applications that were acknowledged, and those that were not.
    pub(crate) applied: BTreeMap<String, Vec<(String, bool)>>,
    /// Documents, by the digests of their heads: whether they were acknowledged; certainly not; nobody knows.
    pub(crate) published: BTreeMap<Digest, Option<bool>>,
    /// Sites of documents that were acknowledged.
    pub(crate) added: Vec<String>,
    pub(crate) revoked: Vec<String>,
    /// The highest number of what each site has said, and was told that it is kept.
    pub(crate) said: BTreeMap<String, u64>,
    /// When the serial in the store was asked for, when it was told, and which one it was.
    pub(crate) serials: Vec<(Instant, Instant, u64)>,
    pub(crate) kills: usize,
}

#[derive(Default)]
struct Test {
    record: Mutex<Record>,
    numbers: AtomicU16,
    end: AtomicBool,
}

impl Test {
    fn record(&self, what: impl FnOnce(&mut Record)) {
        what(&mut self.record.lock().unwrap());
    }

    /// How many documents were acknowledged, how many sites have applied, and how many were revoked.
    fn done(&self) -> [usize; 3] {
        let record = self.record.lock().unwrap();
        let acknowledged = record.published.values().filter(|told| **told == Some(true)).count();
        [acknowledged, record.applied.len(), record.revoked.len()]
    }
}

/// A controller that is killed now and then: whatever it was doing is not done any more.
struct Killed {
    now: Mutex<Option<Controller<Etcd>>>,
    generation: watch::Sender<u64>,
}

impl Killed {
    /// Asks it for something. An answer that does not come is one of a store that does not answer: it has happened, or not.
    async fn ask<T>(
        &self,
        what: impl AsyncFnOnce(&Controller<Etcd>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut generation = self.generation.subscribe();
        let there = self.now.lock().unwrap().clone();
        let gone = || Error::Unavailable("the controller is gone".to_owned());
        let Some(there) = there else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            return Err(gone());
        };
        tokio::select! {
            _ = generation.changed() => Err(gone()),
            told = what(&there) => told,
        }
    }
}

fn store(endpoints: &[String], first: usize, patience: Duration) -> Etcd {
    let mut endpoints = endpoints.to_vec();
    endpoints.rotate_left(first % 3);
    let options = EtcdOptions::new(endpoints, &Key::new("fleet").unwrap());
    Etcd::new(&options.patience(patience)).unwrap()
}

/// Runs a controller, and another one in its place whenever it is told to kill it.
async fn keep_up(test: Arc<Test>, killed: Arc<Killed>, store: Etcd, mut kill: mpsc::UnboundedReceiver<()>) {
    loop {
        let Ok(one) = Controller::open(store.clone()).await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let mut last = one.serial();
        let followed = one.clone();
        let following = tokio::spawn(async move { followed.follow().await });
        *killed.now.lock().unwrap() = Some(one.clone());
        let was_killed = loop {
            tokio::select! {
                told = kill.recv() => break told.is_some(),
                () = tokio::time::sleep(Duration::from_millis(10)) => {
                    assert!(one.serial() >= last, "{last:?}, then {:?}", one.serial());
                    last = one.serial();
                }
            }
        };
        *killed.now.lock().unwrap() = None;
        killed.generation.send_modify(|generation| *generation += 1);
        following.abort();
        if !was_killed {
            return;
        }
        test.record(|record| record.kills += 1);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

struct Client {
    test: Arc<Test>,
    controllers: Vec<Arc<Killed>>,
    random: fastrand::Rng,
    /// A member that is told by whichever controller, and never goes back.
    member: Fleet,
}

impl Client {
    /// Asks one controller after the other for the same, until it is done or cannot be. Whether it was certain at once.
    async fn insist<T>(
        &mut self,
        what: impl AsyncFn(&Controller<Etcd>) -> Result<T, Error>,
    ) -> (Result<T, Error>, bool) {
        for tried in 0.. {
            let one = Arc::clone(&self.controllers[self.random.usize(..CONTROLLERS)]);
            match one.ask(async |one| what(one).await).await {
                Err(Error::Unavailable(why)) if self.test.end.load(Ordering::Relaxed) && tried > 20 => {
                    return (Err(Error::Unavailable(why)), false);
                }
                Err(Error::Unavailable(_)) => tokio::time::sleep(Duration::from_millis(50)).await,
                told => return (told, tried == 0),
            }
        }
        unreachable!("it ends by returning")
    }

    /// Somebody is invited, and two apply with that one invitation.
    async fn enrol(&mut self) {
        let number = self.test.numbers.fetch_add(1, Ordering::Relaxed) + 10;
        let who = format!("s{number}");
        let (key, expires) = (signer(&format!("token {number}")), soon());
        let (network, public) = (self.member.network(), key.public());
        let invited = async |one: &Controller<Etcd>| one.invite("ada", public, terms(&who), expires).await;
        if self.insist(invited).await.0.is_err() {
            return;
        }
        self.test.record(|record| record.invited.push(who.clone()));
        let invitation = Invitation::new(network, Vec::new(), &key, terms(&who), expires);
        let rival = invitation.apply(
            &signer(&format!("rival {number}")),
            {
                let mut rival = member(&who, number);
                rival.identity = signer(&format!("rival {number}")).public();
                rival
            },
            contact(number),
        );
        for signed in [application(&invitation, &who, number), rival.unwrap()] {
            let told = self.insist(async |one| one.apply(signed.clone()).await).await.0;
            let id = enrolment::id(&signed);
            if !matches!(told, Err(Error::Unavailable(_))) {
                let mine = (id, told.is_ok());
                self.test.record(|record| record.applied.entry(who.clone()).or_default().push(mine));
            }
        }
    }

    /// An administrator lets one in who has applied, or takes one out, by a document that others may be ahead of.
    async fn publish(&mut self) {
        let applicants = self.insist(async |one| Ok((one.applications().await?, one.fleet()))).await.0;
        let Ok((applicants, fleet)) = applicants else { return };
        // The application of one that was taken out waits again.
        let is_new = |one: &&Waiting| fleet.site(&one.applied.signed.read().unwrap().member.name).is_none();
        let waiting = applicants.iter().filter(|one| one.state == State::Waiting);
        let waiting: Vec<_> = waiting.filter(is_new).collect();
        let members = fleet
            .sites()
            .into_iter()
            .filter(|(name, site)| name.as_str() != "hub" && !site.member.is_revoked());
        let members: Vec<_> = members.map(|(_, site)| site.member.into_owned()).collect();
        let revokes = waiting.is_empty() || (members.len() > 3 && self.random.u8(..4) == 0);
        let (site, is_revoked) = if revokes {
            if members.is_empty() {
                return;
            }
            let mut gone = members[self.random.usize(..members.len())].clone();
            gone.revoked = Some(1_800_000_000);
            let contact = fleet.site(&gone.name).unwrap().contact.unwrap().clone();
            (Site::new(gone, contact), true)
        } else {
            let application = waiting[self.random.usize(..waiting.len())].applied.signed.read().unwrap();
            (Site::new(application.member, application.contact), false)
        };
        let who = site.name().to_string();
        let mut news = next(&fleet, &["ada"], |contents| contents.put(site));
        let document = news.document.as_mut().unwrap();
        // Two that make the same change of the same document at another time have made two documents.
        let mut head = document.head.read().unwrap();
        head.made += u64::from(self.test.numbers.fetch_add(1, Ordering::Relaxed));
        document.head = Signed::new(&head, [&signer("ada")]);
        let head = document.head.digest();
        let (told, at_once) = self.insist(async |one| one.publish("ada", news.clone()).await).await;
        self.test.record(|record| match told {
            Ok(()) => {
                record.published.insert(head, Some(true));
                if is_revoked { &mut record.revoked } else { &mut record.added }.push(who);
            }
            // The first try may have been published, and another one after it.
            Err(Error::Overtaken(_) | Error::Refused(_)) if at_once => {
                record.published.insert(head, Some(false));
            }
            Err(_) => drop(record.published.insert(head, None)),
        });
    }

    /// A site says how it is met.
    async fn say(&mut self) {
        let members: Vec<String> = self.member.sites().keys().map(ToString::to_string).collect();
        let members: Vec<&String> = members.iter().filter(|name| name.starts_with('s')).collect();
        if members.is_empty() {
            return;
        }
        let who = members[self.random.usize(..members.len())].clone();
        let number = u64::from(self.test.numbers.fetch_add(1, Ordering::Relaxed)) + 1000;
        let own: u16 = who[1..].parse().unwrap();
        let news = notice(&self.member, &who, number, contact(own));
        let told = self.insist(async |one| one.hear(&name(&who), news.clone()).await).await.0;
        // One that was revoked says nothing any more, and one whose rival was let in never did.
        if told.is_ok() {
            self.test.record(|record| {
                let last = record.said.entry(who).or_default();
                *last = number.max(*last);
            });
        }
    }

    async fn ask_for_serial(&mut self) {
        let called = Instant::now();
        if let (Ok(serial), true) = self.insist(async |one| one.serial_in_store().await).await {
            self.test.record(|record| record.serials.push((called, Instant::now(), serial.0)));
        }
    }

    /// A member hears news of whichever controller.
    async fn hear(&mut self) {
        let have = self.member.have();
        let numbers = self.member.numbers();
        let Ok(news) =
            self.insist(async |one| Ok(one.fleet().all_news(&have, Notices::After(&numbers)))).await.0
        else {
            return;
        };
        let before = self.member.serial();
        let mut refused = self.member.take(news).refused;
        // A controller that is behind tells what one has said who speaks for nobody any more.
        let is_out = |who: &_| self.member.site(who).is_some_and(|site| site.member.is_revoked());
        refused.retain(|refusal| !matches!(refusal, Refusal::Unsigned(who) if is_out(who)));
        assert_eq!(refused, []);
        assert!(self.member.serial() >= before);
    }

    async fn work(mut self) {
        while !self.test.end.load(Ordering::Relaxed) {
            match self.random.u8(..12) {
                0..3 => self.enrol().await,
                3..7 => self.publish().await,
                7..9 => self.say().await,
                9 => self.ask_for_serial().await,
                _ => self.hear().await,
            }
            tokio::time::sleep(Duration::from_millis(self.random.u64(5..60))).await;
        }
    }
}

#[test]
fn whatever_dies_nothing_that_was_acknowledged_is_lost() {
    if !netns::available_to_tests() {
        return;
    }
    let mut cluster = Cluster::start(3, None).unwrap();
    let clients = cluster.clients().name().to_owned();
    let endpoints = cluster.endpoints();
    let test = Arc::new(Test::default());
    let (kills, killing): (Vec<_>, Vec<_>) = (0..CONTROLLERS).map(|_| mpsc::unbounded_channel()).unzip();
    let (begun, has_begun) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            let run = || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                LocalSet::new().block_on(&runtime, run(&test, &endpoints, killing, begun));
            };
            netns::Namespace::open(&clients).unwrap().run(run).unwrap();
        });
        if has_begun.recv().is_err() {
            return running.join().unwrap();
        }
        let has_enough = break_things(&mut cluster, &test, &kills);
        let is_well = cluster.wait_until_well();
        test.end.store(true, Ordering::Relaxed);
        drop(kills);
        running.join().unwrap();
        is_well.unwrap();
        assert!(has_enough, "clients are told nothing");
    });
}

/// Runs controllers and their clients until the test says that it ends, and judges what they were told.
async fn run(
    test: &Arc<Test>,
    endpoints: &[String],
    killing: Vec<mpsc::UnboundedReceiver<()>>,
    begun: std::sync::mpsc::Sender<()>,
) {
    let patient = store(endpoints, 0, FOR_SURE);
    begin(&patient, "ada", first()).await.unwrap();
    begun.send(()).unwrap();
    let (mut controllers, mut tasks) = (Vec::new(), Vec::new());
    for (number, kill) in killing.into_iter().enumerate() {
        let killed = Arc::new(Killed { now: Mutex::default(), generation: watch::Sender::new(0) });
        controllers.push(Arc::clone(&killed));
        tasks.push(spawn_local(keep_up(Arc::clone(test), killed, store(endpoints, number, PATIENCE), kill)));
    }
    let mut newcomer = Fleet::new(fleet::authority::Chain::begin(authority()).unwrap());
    newcomer.take(News { authorities: Vec::new(), ..first() });
    for seed in 0..CLIENTS {
        let client = Client {
            test: Arc::clone(test),
            controllers: controllers.clone(),
            random: fastrand::Rng::with_seed(seed as u64),
            member: newcomer.clone(),
        };
        tasks.push(spawn_local(client.work()));
    }
    for each in tasks {
        each.await.unwrap();
    }
    let later = Controller::open(patient).await.unwrap();
    let texts = read_log(&later).await;
    let record = std::mem::take(&mut *test.record.lock().unwrap());
    judge(&record, &later, &texts).await;
}

async fn read_log(one: &Controller<Etcd>) -> Vec<String> {
    let mut texts = Vec::new();
    loop {
        let more = one.log(texts.len() as u64 + 1).await.unwrap();
        if more.is_empty() {
            return texts;
        }
        texts.extend(more);
    }
}

/// One fault after another, until there is enough to be judged. Whether there was in the end.
fn break_things(cluster: &mut Cluster, test: &Test, kills: &[mpsc::UnboundedSender<()>]) -> bool {
    let mut random = fastrand::Rng::with_seed(25);
    let begin = Instant::now();
    let enough = [scaled(15, 300), scaled(15, 300), 3];
    let lacks = |done: [usize; 3]| done.iter().zip(enough).any(|(done, enough)| *done < enough);
    let mut done = test.done();
    let mut faults =
        ["kill", "stop", "isolate", "cut off", "stop two", "controller", "controllers", "kill all"];
    let mut count = 0;
    while count < scaled(8, 150) || lacks(done) {
        // On a machine that does much else a round of faults may leave no time in which anything is done.
        let since = Instant::now();
        while count > 0 && test.done() == done {
            if since.elapsed() > 3 * FOR_SURE {
                return false;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        done = test.done();
        random.shuffle(&mut faults);
        for fault in faults {
            let member = match cluster.leader() {
                Some(leader) if random.bool() => leader,
                _ => random.usize(..cluster.members()),
            };
            let other = (member + 1) % cluster.members();
            let lasts = Duration::from_millis(random.u64(300..1500));
            match fault {
                "kill" => {
                    cluster.kill(member);
                    std::thread::sleep(lasts);
                    cluster.run(member).unwrap();
                }
                "kill all" => {
                    (0..cluster.members()).for_each(|member| cluster.kill(member));
                    std::thread::sleep(lasts / 4);
                    (0..cluster.members()).for_each(|member| cluster.run(member).unwrap());
                }
                "stop" => {
                    cluster.stop(member);
                    std::thread::sleep(lasts);
                    cluster.go_on(member);
                }
                "stop two" => {
                    cluster.stop(member);
                    cluster.stop(other);
                    std::thread::sleep(lasts);
                    cluster.go_on(member);
                    cluster.go_on(other);
                }
                "isolate" | "cut off" => {
                    if fault == "isolate" { cluster.isolate(member) } else { cluster.cut_off(member) }
                        .unwrap();
                    std::thread::sleep(lasts);
                    cluster.mend(member).unwrap();
                }
                // One that has failed takes nothing any more.
                "controller" => _ = kills[random.usize(..kills.len())].send(()),
                _ => kills.iter().for_each(|kill| _ = kill.send(())),
            }
            count += 1;
            // Some time in which it may mend, not always long enough.
            std::thread::sleep(Duration::from_millis(random.u64(100..900)));
        }
    }
    eprintln!("{count} faults in {:.0} s", begin.elapsed().as_secs_f32());
    true
}
