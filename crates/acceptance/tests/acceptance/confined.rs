//! What a running program may still do, by hand as well as under systemd (docs/operations.md, "Privileges").

use std::path::Path;

/// CAP_NET_ADMIN and CAP_NET_RAW.
pub(crate) const TUNNEL: u64 = 0x3000;
/// Those, CAP_NET_BIND_SERVICE, CAP_PERFMON and CAP_BPF.
pub(crate) const GATEWAY: u64 = TUNNEL | 0x400 | 0x40_0000_0000 | 0x80_0000_0000;

/// No thread of the process has more capabilities than these, or can get more, and one that reads what others ask has none.
pub(crate) fn assert_confined(process: u32, most: u64) {
    let read = |path: &Path| std::fs::read_to_string(path).expect("a file of /proc");
    let folder = Path::new("/proc").join(process.to_string());
    for thread in std::fs::read_dir(folder.join("task")).expect("threads") {
        let status = read(&thread.expect("a thread").path().join("status"));
        for line in ["Seccomp:\t2", "NoNewPrivs:\t1"] {
            assert!(status.contains(line), "{line} in {status}");
        }
        let has = if status.starts_with("Name:\tcontrol\n") { 0 } else { most };
        for (set, most) in [("CapBnd:\t", most), ("CapEff:\t", has), ("CapPrm:\t", has)] {
            let held = status.split(set).nth(1).and_then(|rest| rest.split_whitespace().next());
            let held = held.and_then(|held| u64::from_str_radix(held, 16).ok()).expect(set);
            assert_eq!(held & !most, 0, "{set} in {status}");
        }
    }
    let limits = read(&folder.join("limits"));
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).expect("a line");
    assert_eq!(core.split_whitespace().collect::<Vec<_>>()[4..], ["0", "0", "bytes"]);
}
