//! On folders that look like machines.

use std::fs;

use linux::netlink::Link;

use super::*;

const HOME: &str = "[[uplink]]\nname = \"fibre\"\ninterface = \"eth0\"\ndelegation = true\n\
                    [[network]]\nname = \"home\"\ninterface = \"eth1\"\n";

struct Folder(tempfile::TempDir);

impl Folder {
    fn new(files: &[(&str, &str)]) -> Folder {
        let folder = Folder(tempfile::tempdir().unwrap());
        for (name, text) in files {
            let path = folder.0.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    fn machine(&self) -> Machine {
        let links = ["lo", "eth0", "eth1"].into_iter().zip(1..).map(|(name, index)| Link {
            index,
            name: name.into(),
            mtu: 1500,
            mac: None,
            up: true,
            running: true,
            resolves: true,
        });
        Machine { root: self.0.path().into(), links: links.collect() }
    }

    /// What is said of a configuration, where files go to `etc/systemd` in this folder.
    fn says(&self, configuration: &str) -> String {
        let file = self.0.path().join("home.toml");
        fs::write(&file, configuration).unwrap();
        let config = config::load(&file).unwrap();
        said(&config, &file, &self.machine(), Some(&self.0.path().join("etc/systemd"))).unwrap()
    }

    fn written(&self, interface: &str) -> Option<String> {
        fs::read_to_string(self.0.path().join(format!("etc/systemd/network/05-sidestep-{interface}.network")))
            .ok()
    }

    /// Its settings, without comments.
    fn settings(&self, interface: &str) -> String {
        let text = self.written(interface).unwrap();
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines.collect::<Vec<_>>().join(" ")
    }
}

#[test]
fn interfaces_that_nobody_configures_are_up_and_the_uplink_asks_for_ipv4() {
    let folder = Folder::new(&[]);
    let says = folder.says(HOME);
    assert!(
        says.contains("systemctl enable --now systemd-networkd\n    systemctl enable --now sidestep@home\n"),
        "{says}"
    );
    assert_eq!(
        folder.settings("eth0"),
        "[Match] Name=eth0 [Network] DHCP=ipv4 IPv6AcceptRA=no KeepConfiguration=yes"
    );
    assert_eq!(
        folder.settings("eth1"),
        "[Match] Name=eth1 [Network] IPv6AcceptRA=no KeepConfiguration=yes ConfigureWithoutCarrier=yes"
    );
    let path = folder.0.path().join("etc/systemd/networkd.conf.d/sidestep.conf");
    assert!(fs::read_to_string(&path).unwrap().contains("ManageForeignRoutes=no"));
    // networkd is no longer root when it reads them.
    for path in [&path, path.parent().unwrap()] {
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o044, 0o044);
    }
}

#[test]
fn a_static_address_of_ipv4_is_not_asked_for_and_what_others_make_is_left_alone() {
    let folder = Folder::new(&[]);
    folder.says(
        "[[uplink]]\nname = \"a\"\ninterface = \"eth0\"\naddresses = [\"192.0.2.2/24\"]\nipv4_router = \"192.0.2.1\"\n\
         [[uplink]]\nname = \"b\"\ninterface = \"ppp0\"\nrouter = \"point-to-point\"\n\
         [[uplink]]\nname = \"c\"\ninterface = \"he6\"\naddresses = [\"2001:db8:1::2/64\"]\n\
         [uplink.tunnel]\nkind = \"6in4\"\nover = \"eth0\"\nremote = \"192.0.2.9\"\n",
    );
    assert!(!folder.settings("eth0").contains("DHCP"));
    for made in ["ppp0", "he6"] {
        assert_eq!(folder.settings(made), format!("[Match] Name={made} [Link] Unmanaged=yes"));
    }
}

#[test]
fn what_a_file_says_of_ipv4_and_of_vlans_is_kept_also_from_files_beside_it() {
    let folder = Folder::new(&[
        ("run/systemd/netif/state", ""),
        (
            "run/systemd/netif/links/2",
            "ADMIN_STATE=configured\nNETWORK_FILE=/etc/systemd/network/50-all.network\n",
        ),
        (
            "etc/systemd/network/50-all.network",
            "# all\n[Match]\nName=eth*\n\n[Network]\nDHCP=yes\nIPv6AcceptRA=yes\nDNS=192.0.2.53 \\\n# one\n  192.0.2.54\n\n\
             [DHCPv6]\nWithoutRA=solicit\n[DHCPv4]\nRouteMetric=5\n",
        ),
        ("usr/lib/systemd/network/50-all.network.d/a.conf", "[Network]\nVLAN=no\n"),
        ("etc/systemd/network/50-all.network.d/a.conf", "[Network]\nLinkLocalAddressing=no\nVLAN=v7\n"),
        ("etc/systemd/network/50-all.network.d/README", "[Network]\nVLAN=v8\n"),
    ]);
    let says = folder.says(HOME);
    assert!(says.contains("systemctl restart systemd-networkd\n"), "{says}");
    assert_eq!(
        folder.settings("eth0"),
        "[Match] Name=eth0 [Network] DNS=192.0.2.53  192.0.2.54 [DHCPv4] RouteMetric=5 [Network] VLAN=v7 \
         [Network] DHCP=ipv4 IPv6AcceptRA=no KeepConfiguration=yes"
    );
}

#[test]
fn nothing_that_is_there_is_changed() {
    let own = "[Match]\nName=eth0\n";
    let folder = Folder::new(&[("etc/systemd/network/05-sidestep-eth0.network", own)]);
    let says = folder.says(HOME);
    assert!(says.contains("05-sidestep-eth0.network exists already, and is left as it is"), "{says}");
    assert_eq!(folder.written("eth0").as_deref(), Some(own));
    let before = folder.written("eth1");
    assert!(before.is_some());
    let says = folder.says(HOME);
    assert_eq!(says.matches("exists already").count(), 3, "{says}");
    assert_eq!(folder.written("eth1"), before);
}

#[test]
fn a_file_that_comes_first_by_its_name_is_named() {
    let folder = Folder::new(&[
        ("run/systemd/netif/links/2", "NETWORK_FILE=/etc/systemd/network/00-eth0.network\n"),
        ("run/systemd/netif/links/3", "NETWORK_FILE=/run/systemd/network/10-netplan-eth1.network\n"),
        (
            "run/systemd/network/10-netplan-eth1.network",
            "[Match]\nName=eth1\n[Network]\nAddress=192.168.1.1/24\n",
        ),
    ]);
    let says = folder.says(HOME);
    assert!(
        says.contains(
            "eth0: systemd-networkd takes /etc/systemd/network/00-eth0.network, which comes before"
        ),
        "{says}"
    );
    assert_eq!(folder.written("eth0"), None);
    assert!(folder.settings("eth1").contains("[Network] Address=192.168.1.1/24 [Network] IPv6AcceptRA=no"));
}

#[test]
fn a_file_that_cannot_be_read_is_named_and_none_is_written() {
    let folder =
        Folder::new(&[("run/systemd/netif/links/2", "NETWORK_FILE=/etc/systemd/network/50-all.network\n")]);
    let file = folder.0.path().join("home.toml");
    fs::write(&file, HOME).unwrap();
    let error =
        said(&config::load(&file).unwrap(), &file, &folder.machine(), Some(folder.0.path())).unwrap_err();
    assert!(error.to_string().contains("/etc/systemd/network/50-all.network: No such file"), "{error}");
    assert_eq!(folder.written("eth0"), None);
}

#[test]
fn of_other_managers_it_is_said_what_they_are_to_be_told() {
    let folder = Folder::new(&[
        ("run/NetworkManager/devices/2", "[device]\nmanaged=true\n"),
        ("run/NetworkManager/devices/3", "[device]\nmanaged=false\n"),
        ("etc/network/interfaces", "auto lo\niface lo inet loopback\niface eth1 inet manual\n"),
        ("etc/network/interfaces.d/eth1", "iface eth1 inet6 auto\n"),
    ]);
    let says = folder.says(HOME);
    assert!(says.contains("eth0: NetworkManager configures it"), "{says}");
    assert!(
        says.contains("Take its `iface eth1 inet6` out of /") && says.contains("interfaces.d/eth1"),
        "{says}"
    );
    assert!(!folder.0.path().join("etc/systemd").exists());
}

#[test]
fn without_a_folder_files_are_shown_and_a_pattern_is_none() {
    let folder = Folder::new(&[]);
    let file = folder.0.path().join("home.toml");
    fs::write(&file, HOME.replace("eth1", "eth[1]")).unwrap();
    let says = said(&config::load(&file).unwrap(), &file, &folder.machine(), None).unwrap();
    assert!(says.contains("/etc/systemd/network/05-sidestep-eth0.network\n    # Written"), "{says}");
    assert!(says.contains("Nothing is written") && says.contains("--into /etc/systemd"), "{says}");
    assert!(says.contains("eth[1]: systemd-networkd would take its name for a pattern"), "{says}");
    assert_eq!(folder.written("eth0"), None);
}

#[test]
fn a_file_of_any_text_has_what_is_ours_once() {
    for text in [
        "",
        "[",
        "]",
        "[Network",
        "=\n=",
        "[Network]\n=\\",
        "\\",
        "[Network]\nDHCP",
        "x=y\n[Network]\n\\\n\\\nDHCP=yes",
    ] {
        let (kept, _) = without_ours(text);
        assert!(!kept.contains("DHCP"), "{kept}");
    }
}
