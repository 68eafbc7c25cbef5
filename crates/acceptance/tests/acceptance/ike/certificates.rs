//! Certificates with an intermediate authority, made by `openssl`: who is believed and who is not.

use std::process::Command;

use lab::patience::wait_until;

use super::scene::{Plan, Scene};

/// Makes a root, an authority below it, leaves for both ends, and another root. `$1` is the kind of key, `$2` our name, `$3`
/// theirs, `$4` how many days ours is valid.
const MAKE: &str = r#"
set -eu
key() {
    case $1 in
        p256) openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 ;;
        p384) openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-384 ;;
        ed25519) openssl genpkey -algorithm ED25519 ;;
        rsa) openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 ;;
        rsa4096) openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:4096 ;;
    esac
}
mkdir -p x509 x509ca private
for root in root other; do
    key "$1" >$root.key
    openssl req -x509 -new -key $root.key -subj "/O=Test/CN=$root" -days 30 \
        -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign -out $root.crt
done
sign() { # name, subject, extensions, issuer, days
    openssl req -new -key "$1.key" -subj "/O=Test/CN=$2" -out "$1.csr"
    printf '%b' "$3" >"$1.ext"
    openssl x509 -req -in "$1.csr" -CA "$4.crt" -CAkey "$4.key" -CAcreateserial -days "$5" -extfile "$1.ext" \
        -out "$1.crt"
}
key "$1" >middle.key
sign middle middle 'basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign\n' root 30
key "$1" >a.key
sign a "$2" "subjectAltName=DNS:$2\n" middle "$4"
key "$1" >b.key
sign b "$3" "subjectAltName=DNS:$3\n" middle 30
cp root.crt middle.crt x509ca/
cp b.crt x509/
cp b.key private/
for name in a middle root other; do openssl x509 -in $name.crt -outform DER -out $name.der; done
openssl pkcs8 -topk8 -nocrypt -in a.key -outform DER -out a.key.der
"#;

struct Made {
    kind: &'static str,
    ours: &'static str,
    theirs: &'static str,
    days: &'static str,
}

impl Made {
    const fn of(kind: &'static str) -> Self {
        Self { kind, ours: "a.example", theirs: "b.example", days: "30" }
    }

    /// Both ends with certificates, ours believing this authority.
    fn scene(&self, authority: &str, plan: Plan) -> Option<Scene> {
        let scene = Scene::empty(plan.nat)?;
        let mut make = Command::new("sh");
        make.args(["-c", MAKE, "make", self.kind, self.ours, self.theirs, self.days]);
        let made = make.current_dir(scene.folder.path()).output().expect("a shell");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let file = |name: &str| scene.path(name).display().to_string();
        let mut plan = plan.without(&["psk"]).ours(&[
            &format!("certificate {}", file("a.der")),
            &format!("certificate {}", file("middle.der")),
            &format!("key {}", file("a.key.der")),
            &format!("authority {}", file(authority)),
        ]);
        plan.authentication = "pubkey";
        scene.start(plan)
    }

    fn in_full(&self, authority: &str, plan: Plan) -> Option<Scene> {
        lab::scale::scaled(None, Some(plan)).and_then(|plan| self.scene(authority, plan))
    }
}

fn both_begin(scene: &Scene) {
    scene.tell("initiate");
    scene.wait_told("child up", 1);
    scene.ping(2);
    scene.tell("delete-ike");
    scene.wait_told("IKE SA down: Deleted", 1);
    assert!(scene.they_initiate(), "{}", scene.they_said());
    scene.wait_told("child up", 2);
    scene.ping(2);
}

#[test]
fn ecdsa_p256_with_an_authority_in_between() {
    let Some(scene) = Made::of("p256").scene("root.der", Plan::new()) else { return };
    both_begin(&scene);
}

#[test]
fn ecdsa_p384() {
    let Some(scene) = Made::of("p384").in_full("root.der", Plan::new()) else { return };
    both_begin(&scene);
}

#[test]
fn ed25519() {
    let Some(scene) = Made::of("ed25519").in_full("root.der", Plan::new()) else { return };
    both_begin(&scene);
}

#[test]
fn rsa() {
    let Some(scene) = Made::of("rsa").in_full("root.der", Plan::new()) else { return };
    both_begin(&scene);
}

#[test]
fn rsa_of_4096_bits_in_fragments_of_600_bytes() {
    let plan =
        Plan::new().charon("fragment_size = 600\n").connection("fragmentation = yes\n send_cert = always\n");
    let Some(scene) = Made::of("rsa4096").in_full("root.der", plan) else { return };
    both_begin(&scene);
    let said = scene.they_said();
    assert!(said.contains("splitting IKE message"), "{said}");
    assert!(said.contains("reassembled fragmented IKE message"), "{said}");
}

/// Neither end has an IKE SA, whoever begins.
fn refused(scene: &Scene) {
    scene.tell("initiate");
    scene.wait_told("InitiationFailed", 1);
    assert!(scene.told().contains("AuthenticationFailed"), "{}", scene.told());
    assert!(!scene.they_initiate());
    // Whoever answers has proved itself first, and is told afterwards that it was in vain (RFC 7296 §2.21.2).
    wait_until("nothing at either end", || {
        let (_, list) = scene.asked(&["--list-sas"]);
        !list.contains("ESTABLISHED")
            && scene.count("child up") == scene.count("child down")
            && scene.count("IKE SA up") == scene.count("IKE SA down")
    });
}

#[test]
fn an_authority_that_we_do_not_know_is_not_believed() {
    let Some(scene) = Made::of("p256").in_full("other.der", Plan::new()) else { return };
    refused(&scene);
}

#[test]
fn a_name_that_our_certificate_has_not_is_not_believed() {
    let made = Made { ours: "c.example", ..Made::of("p256") };
    let Some(scene) = made.in_full("root.der", Plan::new()) else { return };
    refused(&scene);
}

#[test]
fn a_name_that_their_certificate_has_not_is_not_believed() {
    let made = Made { theirs: "c.example", ..Made::of("p256") };
    let Some(scene) = made.in_full("root.der", Plan::new()) else { return };
    refused(&scene);
}

#[test]
fn a_certificate_that_has_expired_is_not_believed() {
    let made = Made { days: "-1", ..Made::of("p256") };
    let Some(scene) = made.in_full("root.der", Plan::new()) else { return };
    refused(&scene);
}
