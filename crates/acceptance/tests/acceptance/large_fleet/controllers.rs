//! A fleet with several controllers, each at a hub, on a cluster of etcd; and spokes, each with the hub of its region.
//!
//! ```text
//!   etcd 0 ─┐               ┌── site 1 (hub, controller 1) ═══ spokes of region 1
//!   etcd 1 ─┼── router ─────┼── site 2 (hub, controller 2) ═══ spokes of region 2
//!   etcd 2 ─┘               └── site 3 (hub, controller 3) ═══ spokes of region 3
//! ```

use std::fmt::Write as _;
use std::ops::{Deref, DerefMut};

use lab::etcd::Cluster;
use lab::machines::{Machines, inside, outside};

use super::sites::{Sites, wait_until};

/// Controllers, members of etcd, hubs.
pub(super) const HUBS: usize = 3;

pub(super) struct Controlled {
    sites: Sites,
    pub(super) cluster: Cluster,
    pub(super) count: usize,
}

impl Deref for Controlled {
    type Target = Sites;

    fn deref(&self) -> &Sites {
        &self.sites
    }
}

impl DerefMut for Controlled {
    fn deref_mut(&mut self) -> &mut Sites {
        &mut self.sites
    }
}

/// Which region a site is in.
fn region(site: usize) -> usize {
    (site - 1) % HUBS + 1
}

impl Controlled {
    /// Hubs and spokes, `count` together, that reach each other. `same_region`: a spoke has a tunnel with its region's hub only.
    pub(super) fn new(count: usize, same_region: bool) -> Option<Self> {
        let program = crate::program(&["etcd"])?;
        let cluster = Cluster::start(HUBS, None).expect("a cluster");
        let machines = Machines::named(lab::prefix::unique());
        machines.make(count).expect("machines");
        cluster.link_to(&machines.router()).expect("a way to it");
        let sites = Sites::new(machines, program);
        let mut rules = format!(
            "[[link]]\nbetween = {{ roles = [\"hub\"] }}\nand = {{ roles = [\"hub\"] }}\n\
             [[link]]\nbetween = {{ roles = [\"hub\"] }}\nand = {{ roles = [\"spoke\"] }}\nsame_region = {same_region}\n\
             [[relay]]\nroles = [\"hub\"]\n"
        );
        for hub in 2..=HUBS {
            let folder = sites.folder.path().join(folder(hub));
            std::fs::create_dir(&folder).expect("a folder");
            let said = sites.run(hub, &["control", "certificate", "--dir", &folder.display().to_string()]);
            let certificate = said.expect("a certificate");
            write!(
                rules,
                "[[controller]]\nname = \"control-{hub}\"\ninside = \"[{}]:4160\"\noutside = \"[{}]:4160\"\n\
                 certificate = \"{}\"\n",
                inside(hub),
                outside(hub),
                certificate.trim()
            )
            .expect("a text takes all");
        }
        std::fs::write(sites.folder.path().join("rules.toml"), rules).expect("rules");
        let store = store_of(&cluster);
        let (key, first) = (sites.key.display().to_string(), [outside(1), inside(1)]);
        let [outside, inside] = first.map(|address| format!("[{address}]:4160"));
        sites.administer(&[
            "init",
            "--key",
            &key,
            "--policy",
            "rules.toml",
            "--store",
            &store,
            "--outside",
            &outside,
            "--inside",
            &inside,
        ]);
        for hub in 2..=HUBS {
            for name in ["network.toml", "access"] {
                let to = sites.folder.path().join(folder(hub)).join(name);
                std::fs::copy(sites.control.join(name), to).expect("a copy");
            }
        }
        let mut controlled = Controlled { sites, cluster, count };
        (1..=HUBS).for_each(|hub| controlled.start_controller(hub, &store));
        controlled.admit();
        Some(controlled)
    }

    /// Where the store is, for commands.
    pub(super) fn store(&self) -> String {
        store_of(&self.cluster)
    }

    pub(super) fn start_controller(&mut self, hub: usize, store: &str) {
        let folder = self.folder.path().join(folder(hub)).display().to_string();
        self.start(hub, "controller", &["control", "up", "--dir", &folder, "--store", store]);
        let log = self.log(hub, "controller");
        wait_until("a controller", || {
            std::fs::read_to_string(&log).is_ok_and(|text| text.contains("sites is served"))
        });
    }

    /// All sites enrol at once, one signature lets them in, and gateways and agents start.
    fn admit(&mut self) {
        let all: Vec<usize> = (1..=self.count).collect();
        for region_of in 1..=HUBS {
            let region_name = format!("region-{region_of}");
            for (role, is_hub) in [("hub", true), ("spoke", false)] {
                let sites: Vec<usize> = all
                    .iter()
                    .copied()
                    .filter(|site| region(*site) == region_of && (*site <= HUBS) == is_hub)
                    .collect();
                let names: Vec<String> = sites.iter().map(|site| format!("site-{site}")).collect();
                let mut words = vec!["invite", "--expires", "1h", "--role", role, "--region", &region_name];
                names.iter().for_each(|name| words.extend(["--site", name]));
                let said = self.administer(&words);
                let invitations = said.split_whitespace().filter(|word| word.starts_with("sidestep-fleet1-"));
                for (site, invitation) in sites.iter().zip(invitations) {
                    self.enroll(*site, invitation);
                }
            }
        }
        let names: Vec<String> = all.iter().map(|site| format!("site-{site}")).collect();
        let mut words = vec!["approve", "--wait", "2m"];
        words.extend(names.iter().map(String::as_str));
        self.sign(&words);
        all.iter().for_each(|site| self.begin(*site));
    }
}

fn folder(hub: usize) -> String {
    format!("control-{hub}")
}

fn store_of(cluster: &Cluster) -> String {
    let endpoints: Vec<String> = cluster.endpoints().iter().map(|url| url.replace("http://", "")).collect();
    format!("etcd://{}/fleet", endpoints.join(","))
}
