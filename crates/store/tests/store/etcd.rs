//! The store in etcd: the stories on a cluster of three members, and what becomes of it when members die, stop or are cut off.

use std::cell::Cell;
use std::process::Command;
use std::time::{Duration, Instant};

use lab::etcd::{Certificates, Cluster, address};
use lab::scale::scaled;
use linux::netns;
use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::TestRunner;
use store::{
    Commit, CommitError, Etcd, EtcdOptions, EtcdTls, Failure, Key, Prefix, Revision, Store as _, Watch as _,
    once,
};

use crate::model;
use crate::suite::{self, Place};

/// Hardly time enough for an election: what is not answered then is asked again.
const PATIENCE: Duration = Duration::from_millis(1500);

/// Long for anything that comes in the end.
const FOR_SURE: Duration = Duration::from_secs(60);

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

/// Where clients of a cluster are.
pub(crate) fn among_clients<T: Send>(cluster: &str, work: impl AsyncFnOnce() -> T + Send) -> T {
    let run = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work());
    netns::Namespace::open(cluster).unwrap().run(run).unwrap()
}

/// The store below a name, whose first member is this.
pub(crate) fn client(cluster: &Cluster, first: usize, below: &str) -> Etcd {
    let mut endpoints = cluster.endpoints();
    let first = first % endpoints.len();
    endpoints.rotate_left(first);
    Etcd::new(&EtcdOptions::new(endpoints, &key(below)).patience(PATIENCE)).unwrap()
}

struct InEtcd<'a> {
    cluster: &'a Cluster,
    below: &'a str,
    clients: Cell<usize>,
}

impl Place for InEtcd<'_> {
    type Store = Etcd;

    /// The next client begins with the next member.
    fn client(&self) -> Etcd {
        let number = self.clients.get();
        self.clients.set(number + 1);
        client(self.cluster, number, self.below)
    }

    async fn forget(&self) {
        let last = self.client().commit(&Commit::new().put(key("elsewhere"), "")).await.unwrap();
        self.cluster.etcdctl(&["compact", &last.to_string()]).unwrap();
    }

    async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// etcd has whole seconds.
    fn lease(&self) -> Duration {
        Duration::from_secs(1)
    }
}

macro_rules! all_stories {
    ($($story:ident),* $(,)?) => {
        async fn tell_all(cluster: &Cluster) {
            $(
                let below = concat!("stories/", stringify!($story));
                let begin = Instant::now();
                suite::$story(&InEtcd { cluster, below, clients: Cell::new(0) }).await;
                eprintln!("{:.1} s  {}", begin.elapsed().as_secs_f32(), stringify!($story));
            )*
        }
    };
}
for_each_story!(all_stories);

#[test]
fn a_cluster_tells_all_stories_and_does_what_the_model_says() {
    if !netns::available_to_tests() {
        return;
    }
    let cluster = Cluster::start(3, None).unwrap();
    among_clients(cluster.clients().name(), async || {
        tell_all(&cluster).await;
        let mut runner = TestRunner::deterministic();
        let clients: Vec<Etcd> = (0..3).map(|first| client(&cluster, first, "model")).collect();
        for case in 0..scaled(20, 300) {
            let operations = model::operations().new_tree(&mut runner).unwrap().current();
            model::compare(&clients, &Prefix::new(format!("case-{case}")).unwrap(), operations).await;
        }
        // None of it is outside of what the fleets have.
        let all = cluster.etcdctl(&["get", "--prefix", "", "--keys-only"]).unwrap();
        let names = all.lines().filter(|line| !line.is_empty());
        assert!(names.clone().count() > 100);
        for name in names {
            assert!(name.starts_with("stories/") || name.starts_with("model/"), "{name}");
        }
    });
}

#[test]
fn two_fleets_in_one_cluster_do_not_see_each_other() {
    if !netns::available_to_tests() {
        return;
    }
    let cluster = Cluster::start(1, None).unwrap();
    among_clients(cluster.clients().name(), async || {
        let [one, other] = ["fleet/one", "fleet/one-2"].map(|below| client(&cluster, 0, below));
        let begin = one.commit(&Commit::new().put(key("head"), "1")).await.unwrap();
        let mut watch = other.watch(&Prefix::everything(), begin);
        one.commit(&Commit::new().put(key("head"), "2")).await.unwrap();
        assert_eq!(other.get(&key("head")).await.unwrap(), None);
        assert_eq!(other.list(&Prefix::everything()).await.unwrap().entries, []);
        let told = other.commit(&Commit::new().if_absent(key("head")).put(key("head"), "3")).await.unwrap();
        assert_eq!(watch.next().await.unwrap().revision, told);

        // What somebody else has put there is not passed over.
        cluster.etcdctl(&["put", "fleet/one/not a key", "1"]).unwrap();
        let error = one.list(&Prefix::everything()).await.unwrap_err().to_string();
        assert!(error.contains("fleet/one/not a key is no key"), "{error}");
        assert!(one.get(&key("head")).await.unwrap().is_some());
    });
}

/// Whatever happens to one of three members, requests are answered, and a watch goes on where it was.
#[test]
fn a_minority_may_be_killed_stopped_slowed_or_cut_off() {
    if !netns::available_to_tests() {
        return;
    }
    let mut cluster = Cluster::start(3, None).unwrap();
    let clients = cluster.clients().name().to_owned();
    among_clients(&clients, async || {
        let mut number = 0;
        let faults = ["kill", "stop", "isolate", "cut off", "slow"];
        for (fault, leads) in scaled(&[true][..], &[true, false])
            .iter()
            .flat_map(|leads| faults.iter().map(move |fault| (*fault, *leads)))
        {
            cluster.wait_until_well().unwrap();
            let leader = cluster.leader().unwrap();
            let member = if leads { leader } else { (leader + 1) % 3 };
            // Both ask that member first.
            let (store, watched) = (client(&cluster, member, "fleet"), client(&cluster, member, "fleet"));
            number += 1;
            let last = write_surely(&store, number).await;
            let mut watch = watched.watch(&Prefix::everything(), last);
            // It is open before the fault.
            number += 1;
            let open = write_surely(&store, number).await;
            assert_eq!(next_surely(&mut watch).await, open, "{fault}");

            let slowed = match fault {
                "kill" => {
                    cluster.kill(member);
                    None
                }
                "stop" => {
                    cluster.stop(member);
                    None
                }
                "isolate" => {
                    cluster.isolate(member).unwrap();
                    None
                }
                "cut off" => {
                    cluster.cut_off(member).unwrap();
                    None
                }
                _ => Some(cluster.slow(member)),
            };
            let mut revisions = Vec::new();
            for _ in 0..5 {
                number += 1;
                let revision = write_surely(&store, number).await;
                assert_eq!(read_surely(&store, number).await, Some(revision), "{fault}");
                revisions.push(revision);
            }
            for revision in revisions {
                assert_eq!(next_surely(&mut watch).await, revision, "{fault}");
            }

            drop(slowed);
            match fault {
                "kill" => cluster.run(member).unwrap(),
                "stop" => cluster.go_on(member),
                "isolate" | "cut off" => cluster.mend(member).unwrap(),
                _ => {}
            }
        }
    });
}

/// The entry of this number.
fn log(number: u64) -> Key {
    key(&format!("log/{number}"))
}

/// Writes an entry, once, and does not rest before that is known.
async fn write_surely(store: &Etcd, number: u64) -> Revision {
    let begin = Instant::now();
    loop {
        let witness = (log(number), number.to_string().into_bytes());
        match once(store, Commit::new(), witness, FOR_SURE).await {
            Ok(revision) => return revision,
            Err(CommitError::Failed(Failure::Unreachable(_))) => assert!(begin.elapsed() < FOR_SURE),
            Err(error) => panic!("{error}"),
        }
    }
}

async fn read_surely(store: &Etcd, number: u64) -> Option<Revision> {
    let begin = Instant::now();
    loop {
        match store.get(&log(number)).await {
            Ok(entry) => return entry.map(|entry| entry.revision),
            Err(Failure::Unreachable(_)) => assert!(begin.elapsed() < FOR_SURE),
            Err(error) => panic!("{error}"),
        }
    }
}

/// The next commit's revision.
async fn next_surely(watch: &mut <Etcd as store::Store>::Watch) -> Revision {
    let begin = Instant::now();
    loop {
        match watch.next().await {
            Ok(changes) => return changes.revision,
            Err(store::WatchError::Failed(Failure::Unreachable(_))) => {}
            Err(error) => panic!("{error}"),
        }
        assert!(begin.elapsed() < FOR_SURE);
    }
}

/// Without members nothing happens, and that is certain; where they have the commit and do not answer, it is not.
#[test]
fn without_a_majority_every_request_ends_and_says_what_is_known() {
    if !netns::available_to_tests() {
        return;
    }
    let mut cluster = Cluster::start(3, None).unwrap();
    let clients = cluster.clients().name().to_owned();
    among_clients(&clients, async || {
        let store = client(&cluster, 0, "fleet");
        let before = write_surely(&store, 1).await;
        let commit = |value: &str| Commit::new().if_at(log(1), before).put(log(1), value);

        for member in 0..3 {
            cluster.stop(member);
        }
        let begin = Instant::now();
        let unknown = store.commit(&commit("stopped")).await;
        assert!(matches!(unknown, Err(CommitError::Unknown(_))), "{unknown:?}");
        assert!(matches!(store.get(&log(1)).await, Err(Failure::Unreachable(_))));
        assert!(store.grant(Duration::from_secs(1)).await.is_err());
        let mut watch = store.watch(&Prefix::everything(), before);
        assert!(watch.next().await.is_err());
        // Four requests, none of which waits for ever.
        assert!(begin.elapsed() < 20 * PATIENCE);

        for member in 0..3 {
            cluster.go_on(member);
            cluster.kill(member);
        }
        let begin = Instant::now();
        let unreachable = loop {
            match store.commit(&commit("killed")).await {
                // It went over a connection of which nobody knew yet that it has ended.
                Err(CommitError::Unknown(_)) if begin.elapsed() < FOR_SURE => {}
                answer => break answer,
            }
        };
        assert!(matches!(unreachable, Err(CommitError::Failed(Failure::Unreachable(_)))), "{unreachable:?}");

        for member in 0..3 {
            cluster.run(member).unwrap();
        }
        cluster.wait_until_well().unwrap();
        let entry = store.get(&log(1)).await.unwrap().unwrap();
        assert!(entry.value == b"1" || entry.value == b"stopped", "{entry:?}");
        // The same watch goes on.
        let last = write_surely(&store, 2).await;
        while next_surely(&mut watch).await < last {}
    });
}

/// Why something is refused: on a busy machine a member may not answer in time before that.
async fn refusal(ask: impl AsyncFn() -> Failure) -> String {
    let begin = Instant::now();
    loop {
        match ask().await {
            Failure::Refused(why) => return why,
            Failure::Unreachable(_) if begin.elapsed() < FOR_SURE => {}
            other => panic!("{other}"),
        }
    }
}

/// An authority, and a certificate for the members, which clients show, too.
fn certificates(folder: &std::path::Path) -> Certificates {
    let at = |name: &str| folder.join(name);
    let names = (0..3).map(|member| format!("IP:{}", address(member))).collect::<Vec<_>>().join(",");
    std::fs::write(at("names"), format!("subjectAltName={names}\nextendedKeyUsage=serverAuth,clientAuth\n"))
        .unwrap();
    let script = "set -e
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=authority -days 30 \
            -addext basicConstraints=critical,CA:TRUE -keyout authority.key -out authority.pem
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=controller -keyout key.pem -out request
        openssl x509 -req -in request -CA authority.pem -CAkey authority.key -CAcreateserial -days 30 \
            -extfile names -out certificate.pem";
    let made = Command::new("bash").args(["-c", script]).current_dir(folder).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Certificates { authority: at("authority.pem"), certificate: at("certificate.pem"), key: at("key.pem") }
}

#[test]
fn members_and_clients_show_certificates_and_a_user_has_a_password() {
    if !netns::available_to_tests() {
        return;
    }
    let [folder, other] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [ours, theirs] = [&folder, &other].map(|folder| certificates(folder.path()));
    let tls = |trusted: &Certificates, shown: Option<&Certificates>| EtcdTls {
        authorities: std::fs::read(&trusted.authority).unwrap(),
        identity: shown
            .map(|shown| (std::fs::read(&shown.certificate).unwrap(), std::fs::read(&shown.key).unwrap())),
    };
    let mut cluster = Cluster::start(3, Some(ours.clone())).unwrap();
    for arguments in [
        &["user", "add", "root:secret"][..],
        &["role", "add", "fleet"],
        &["role", "grant-permission", "fleet", "--prefix=true", "readwrite", "fleet/"],
        &["user", "add", "controller:pass"],
        &["user", "grant-role", "controller", "fleet"],
        &["auth", "enable"],
    ] {
        cluster.etcdctl(arguments).unwrap();
    }
    let clients = cluster.clients().name().to_owned();
    among_clients(&clients, async || {
        let options = |below: &str, tls: EtcdTls| {
            EtcdOptions::new(cluster.endpoints(), &key(below)).patience(PATIENCE).tls(tls)
        };
        let trusted = || tls(&ours, Some(&ours));
        let by_password = Etcd::new(&options("fleet", trusted()).user("controller", "pass")).unwrap();
        let written = write_surely(&by_password, 1).await;
        // The name in the certificate is that of a user, too.
        let by_certificate = Etcd::new(&options("fleet", trusted())).unwrap();
        assert_eq!(read_surely(&by_certificate, 1).await, Some(written));

        let wrong = Etcd::new(&options("fleet", trusted()).user("controller", "wrong")).unwrap();
        let error = refusal(async || wrong.get(&key("head")).await.unwrap_err()).await;
        assert!(error.contains("authentication failed"), "{error}");
        let elsewhere = Etcd::new(&options("other", trusted()).user("controller", "pass")).unwrap();
        let write = async || match elsewhere.commit(&Commit::new().put(key("head"), "1")).await {
            Err(CommitError::Failed(failure)) => failure,
            other => panic!("{other:?}"),
        };
        let error = refusal(write).await;
        assert!(error.contains("permission denied"), "{error}");
        let impostor = Etcd::new(&options("fleet", tls(&theirs, Some(&ours)))).unwrap();
        let begin = Instant::now();
        loop {
            let error = impostor.get(&key("head")).await.unwrap_err().to_string();
            if error.contains("certificate") {
                break;
            }
            assert!(begin.elapsed() < FOR_SURE, "{error}");
        }
        for shown in [None, Some(&theirs)] {
            let stranger = Etcd::new(&options("fleet", tls(&ours, shown))).unwrap();
            assert!(stranger.get(&key("head")).await.is_err());
        }
    });
    // Members that were restarted do not know the token any more.
    among_clients(&clients, async || {
        let options = EtcdOptions::new(cluster.endpoints(), &key("fleet")).patience(PATIENCE);
        let store = Etcd::new(&options.tls(tls(&ours, Some(&ours))).user("controller", "pass")).unwrap();
        write_surely(&store, 2).await;
        for member in 0..3 {
            cluster.kill(member);
            cluster.run(member).unwrap();
        }
        cluster.wait_until_well().unwrap();
        let written = write_surely(&store, 3).await;
        assert_eq!(read_surely(&store, 3).await, Some(written));
    });
}

#[test]
fn options_that_cannot_be_meant_are_refused() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _inside = runtime.enter();
    let tls = || EtcdTls { authorities: Vec::new(), identity: None };
    let wrong = |options: EtcdOptions| Etcd::new(&options).unwrap_err().to_string();
    let none: [&str; 0] = [];
    let options = |endpoint: &str| EtcdOptions::new([endpoint], &key("fleet"));
    assert_eq!(wrong(EtcdOptions::new(none, &key("fleet"))), "no endpoint of etcd is named");
    for (options, why) in [
        (options("https://[::1]:2379"), "https needs the certificate of an authority"),
        (options("http://[::1]:2379").tls(tls()), "there are certificates, but the URL is not https"),
        (options("[::1]:2379"), "an endpoint is like https://etcd-1.example:2379"),
        (options("etcd-1"), "an endpoint is like https://etcd-1.example:2379"),
        (options("not a url"), "not a url: "),
    ] {
        let told = wrong(options);
        assert!(told.contains(why), "{told}");
    }
    let secret =
        EtcdOptions::new(["https://[::1]:2379"], &key("fleet")).user("controller", "pass").tls(tls());
    let shown = format!("{secret:?}");
    assert!(shown.contains("controller") && !shown.contains("pass\""), "{shown}");
}
