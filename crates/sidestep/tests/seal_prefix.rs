//! `seal-prefix` while keys change: whichever of them the other end knows, it can read where this one hops.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use mt6d::keys::{PairKeys, PrivateKey};
use mt6d::record::Record;

/// The records that an end prints whose file has these lines in `[node]` and in `[[peer]]`.
fn records(node: &str, peer: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mt6d0.toml");
    let text = format!(
        "[node]\n{node}\nexternal = \"lo\"\nhop_prefix = \"2001:db8:a1::/64\"\n\
         [[peer]]\nname = \"site-b\"\n{peer}\nhop_prefix = \"2001:db8:b1::/64\"\nallowed_ips = [\"2001:db8:b::/64\"]\n"
    );
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sidestep"));
    let output = command.args(["seal-prefix", file.to_str().unwrap(), "site-b"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn there_is_a_record_for_each_pair_of_keys() {
    let [before, own, theirs, next] = [1, 2, 3, 4].map(|byte| PrivateKey::from_bytes([byte; 32]));
    let private = |name: &str, key: &PrivateKey| format!("{name} = \"{}\"\n", *key.to_base64());
    let public = |name: &str, key: &PrivateKey| format!("{name} = \"{}\"\n", key.public());
    // As the peer opens it, by a private key of its own and what it knows of this end.
    let opens = |record: &String, own: &PrivateKey, known: &PrivateKey| {
        let keys = PairKeys::derive(own, &known.public(), None).unwrap();
        Record::open(record, &keys, 0, now()).is_ok()
    };

    let one = records(&private("private_key", &own), &public("public_key", &theirs));
    assert_eq!(one.len(), 1);
    assert!(opens(&one[0], &theirs, &own));

    let all = records(
        &(private("private_key", &own) + &private("previous_private_key", &before)),
        &(public("public_key", &theirs) + &public("next_public_key", &next)),
    );
    assert_eq!(all.len(), 4);
    for peer in [&theirs, &next] {
        for known in [&own, &before] {
            let readable = all.iter().filter(|record| opens(record, peer, known)).count();
            assert_eq!(readable, 1, "each pair has one record");
        }
    }
}

fn now() -> u64 {
    std::time::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64
}
