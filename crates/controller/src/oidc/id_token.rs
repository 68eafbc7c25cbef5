//! ID tokens: JSON Web Signatures (RFC 7515) with the claims of OpenID Connect Core 1.0, section 3.1.3.7.
//!
//! The algorithms are those that have a public key, each for its own kind of key: a token that says `none`, or `HS256` with the
//! public key as the secret, has no algorithm here.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RSA_PSS_2048_8192_SHA256,
    RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::Deserialize;
use serde_json::{Map, Value};

/// Octets of a token.
const LONGEST: usize = 64 * 1024;
/// How far clocks may be apart, in seconds.
const SKEW: u64 = 60;

/// What a token says.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Claims {
    iss: String,
    pub(super) sub: String,
    aud: Audience,
    #[serde(default)]
    azp: Option<String>,
    exp: u64,
    #[serde(default)]
    nbf: Option<u64>,
    #[serde(default)]
    iat: Option<u64>,
    #[serde(default)]
    nonce: Option<String>,
    /// All others.
    #[serde(flatten)]
    pub(super) other: Map<String, Value>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

/// What it has to say.
pub(super) struct Expected<'a> {
    pub(super) issuer: &'a str,
    pub(super) client_id: &'a str,
    pub(super) nonce: &'a str,
    /// Seconds of Unix time.
    pub(super) now: u64,
}

/// Keys of a provider (RFC 7517).
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Keys {
    keys: Vec<Key>,
}

#[derive(Debug, Clone, Deserialize)]
struct Key {
    kty: String,
    #[serde(default)]
    kid: Option<String>,
    #[serde(default, rename = "use")]
    used_for: Option<String>,
    #[serde(default)]
    alg: Option<String>,
    #[serde(default)]
    crv: Option<String>,
    #[serde(default)]
    n: Option<String>,
    #[serde(default)]
    e: Option<String>,
    #[serde(default)]
    x: Option<String>,
    #[serde(default)]
    y: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: Option<String>,
    #[serde(default)]
    crit: Option<Value>,
}

/// What is wrong with a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wrong {
    /// It is none.
    Form,
    /// It is signed in a way that proves nothing.
    Algorithm(String),
    /// It is signed by a key that the provider does not tell.
    Key,
    /// It is not signed by the key that it names.
    Signature,
    /// It is of another provider.
    Issuer,
    /// It is for another.
    Audience,
    /// Its time is over, or has not come.
    Time,
    /// It answers another login.
    Nonce,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Wrong::Form => "it is no token with the claims that one has to have",
            Wrong::Algorithm(name) => {
                let name: String = name.chars().filter(char::is_ascii_graphic).take(20).collect();
                return write!(f, "{name:?} is no signature that is accepted");
            }
            Wrong::Key => "the identity provider has no such key",
            Wrong::Signature => "its signature is wrong",
            Wrong::Issuer => "it is of another identity provider",
            Wrong::Audience => "it is for another client",
            Wrong::Time => "its time is over, or has not come: look at the clocks, too",
            Wrong::Nonce => "it answers another login",
        })
    }
}

/// Reads a token that one of these keys has signed, and that says what it has to.
pub(super) fn verify(token: &str, keys: &Keys, expected: &Expected<'_>) -> Result<Claims, Wrong> {
    let mut parts = token.split('.');
    let (Some(header), Some(payload), Some(signature), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(Wrong::Form);
    };
    if token.len() > LONGEST {
        return Err(Wrong::Form);
    }
    let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|_| Wrong::Form);
    let Header { alg, kid, crit } = serde_json::from_slice(&decode(header)?).map_err(|_| Wrong::Form)?;
    if crit.is_some() {
        return Err(Wrong::Form);
    }
    if !matches!(alg.as_str(), "RS256" | "PS256" | "ES256" | "EdDSA") {
        return Err(Wrong::Algorithm(alg));
    }
    let signed = &token.as_bytes()[..header.len() + 1 + payload.len()];
    let signature = decode(signature)?;
    let mut answer = Err(Wrong::Key);
    for key in keys.keys.iter().filter(|key| key.may_have_signed(&alg, kid.as_deref())) {
        answer = key.verify(&alg, signed, &signature);
        if answer.is_ok() {
            break;
        }
    }
    answer?;
    let claims: Claims = serde_json::from_slice(&decode(payload)?).map_err(|_| Wrong::Form)?;
    claims.check(expected)?;
    Ok(claims)
}

impl Claims {
    fn check(&self, expected: &Expected<'_>) -> Result<(), Wrong> {
        if self.iss != expected.issuer {
            return Err(Wrong::Issuer);
        }
        let id = expected.client_id;
        let (is_for_us, is_for_others) = match &self.aud {
            Audience::One(one) => (one == id, false),
            Audience::Many(all) => (all.iter().any(|one| one == id), all.len() > 1),
        };
        let authorized = self.azp.as_deref();
        if !is_for_us || authorized.is_some_and(|one| one != id) || is_for_others && authorized.is_none() {
            return Err(Wrong::Audience);
        }
        let late = expected.now.saturating_sub(SKEW);
        let early = expected.now.saturating_add(SKEW);
        if self.exp <= late || [self.nbf, self.iat].into_iter().flatten().any(|at| at > early) {
            return Err(Wrong::Time);
        }
        match self.nonce.as_deref() == Some(expected.nonce) {
            true => Ok(()),
            false => Err(Wrong::Nonce),
        }
    }

    /// What somebody is called.
    pub(super) fn called(&self) -> String {
        let text = |name: &str| self.other.get(name).and_then(Value::as_str);
        text("email").or_else(|| text("preferred_username")).unwrap_or(&self.sub).to_owned()
    }
}

impl Key {
    fn may_have_signed(&self, algorithm: &str, id: Option<&str>) -> bool {
        let is_named = id.is_none() || self.kid.as_deref() == id;
        let signs = self.used_for.as_deref().is_none_or(|what| what == "sig");
        is_named && signs && self.alg.as_deref().is_none_or(|alg| alg == algorithm)
    }

    /// Each algorithm with its own kind of key.
    fn verify(&self, algorithm: &str, signed: &[u8], signature: &[u8]) -> Result<(), Wrong> {
        let part = |text: &Option<String>| {
            let text = text.as_deref().ok_or(Wrong::Key)?;
            URL_SAFE_NO_PAD.decode(text).map_err(|_| Wrong::Key)
        };
        let result = match (algorithm, self.kty.as_str(), self.crv.as_deref()) {
            ("RS256" | "PS256", "RSA", _) => {
                let key = RsaPublicKeyComponents { n: part(&self.n)?, e: part(&self.e)? };
                let parameters = match algorithm {
                    "RS256" => &RSA_PKCS1_2048_8192_SHA256,
                    _ => &RSA_PSS_2048_8192_SHA256,
                };
                key.verify(parameters, signed, signature)
            }
            ("ES256", "EC", Some("P-256")) => {
                let point = [vec![4], part(&self.x)?, part(&self.y)?].concat();
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(signed, signature)
            }
            ("EdDSA", "OKP", Some("Ed25519")) => {
                UnparsedPublicKey::new(&ED25519, part(&self.x)?).verify(signed, signature)
            }
            _ => return Err(Wrong::Key),
        };
        result.map_err(|_| Wrong::Signature)
    }
}

#[cfg(test)]
mod tests {
    use ring::hmac;
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};
    use serde_json::json;

    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn encode(value: impl AsRef<[u8]>) -> String {
        URL_SAFE_NO_PAD.encode(value)
    }

    /// What is different in what a token says.
    type Change = dyn Fn(&mut Value);

    struct Signer {
        pair: EcdsaKeyPair,
        keys: Keys,
    }

    impl Signer {
        fn new() -> Self {
            let random = SystemRandom::new();
            let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
            let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
            let pair = EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref(), &random).unwrap();
            let point = &pair.public_key().as_ref()[1..];
            let key = json!({ "kty": "EC", "crv": "P-256", "kid": "k1", "use": "sig", "x": encode(&point[..32]), "y": encode(&point[32..]) });
            Signer { pair, keys: serde_json::from_value(json!({ "keys": [key] })).unwrap() }
        }

        fn sign(&self, header: &Value, claims: &Value) -> String {
            let text = format!("{}.{}", encode(header.to_string()), encode(claims.to_string()));
            let signature = self.pair.sign(&SystemRandom::new(), text.as_bytes()).unwrap();
            format!("{text}.{}", encode(signature))
        }
    }

    fn claims(change: impl FnOnce(&mut Value)) -> Value {
        let mut claims = json!({
            "iss": "https://login.example.net", "sub": "7", "aud": "sidestep", "exp": NOW + 300, "iat": NOW, "nonce": "n", "email": "ada@example.net",
        });
        change(&mut claims);
        claims
    }

    fn judge(token: &str, keys: &Keys) -> Result<Claims, Wrong> {
        let expected =
            Expected { issuer: "https://login.example.net", client_id: "sidestep", nonce: "n", now: NOW };
        verify(token, keys, &expected)
    }

    #[test]
    fn a_token_is_good_for_whom_when_and_what_it_was_made() {
        let signer = Signer::new();
        let header = json!({ "alg": "ES256", "kid": "k1" });
        let said = |change: &Change| judge(&signer.sign(&header, &claims(change)), &signer.keys);
        assert_eq!(said(&|_| {}).unwrap().called(), "ada@example.net");
        let many = said(&|c| (c["aud"], c["azp"]) = (json!(["sidestep", "other"]), json!("sidestep")));
        assert!(many.is_ok(), "{many:?}");
        let wrong: &[(&Change, Wrong)] = &[
            (&|c| c["iss"] = "https://login.example.net/".into(), Wrong::Issuer),
            (&|c| c["aud"] = "another".into(), Wrong::Audience),
            (&|c| c["aud"] = json!([]), Wrong::Audience),
            (&|c| c["aud"] = json!(["sidestep", "other"]), Wrong::Audience),
            (&|c| c["azp"] = "another".into(), Wrong::Audience),
            (&|c| c["exp"] = (NOW - 61).into(), Wrong::Time),
            (&|c| c["exp"] = "never".into(), Wrong::Form),
            (&|c| drop(c.as_object_mut().unwrap().remove("exp")), Wrong::Form),
            (&|c| drop(c.as_object_mut().unwrap().remove("sub")), Wrong::Form),
            (&|c| c["nbf"] = (NOW + 61).into(), Wrong::Time),
            (&|c| c["nbf"] = "1".into(), Wrong::Form),
            (&|c| c["iat"] = (NOW + 61).into(), Wrong::Time),
            (&|c| c["nonce"] = "m".into(), Wrong::Nonce),
            (&|c| drop(c.as_object_mut().unwrap().remove("nonce")), Wrong::Nonce),
        ];
        for (at, (change, why)) in wrong.iter().enumerate() {
            assert_eq!(said(change).unwrap_err(), *why, "number {at}");
        }
    }

    #[test]
    fn what_no_key_of_the_provider_has_signed_is_refused_whatever_it_says_of_itself() {
        let (signer, stranger) = (Signer::new(), Signer::new());
        let good = claims(|_| {});
        let header = |alg: &str| json!({ "alg": alg, "kid": "k1" });
        let refused = |token: &str| judge(token, &signer.keys).unwrap_err();
        for alg in ["none", "None", "HS256", "RS1", "ES384", ""] {
            let token = signer.sign(&header(alg), &good);
            assert_eq!(refused(&token), Wrong::Algorithm(alg.into()));
        }
        let text = format!("{}.{}", encode(header("none").to_string()), encode(good.to_string()));
        assert_eq!(refused(&format!("{text}.")), Wrong::Algorithm("none".into()));
        // The public key, which everybody knows, as the secret.
        let public = serde_json::to_vec(&signer.keys.keys[0].x).unwrap();
        let text = format!("{}.{}", encode(header("HS256").to_string()), encode(good.to_string()));
        let code = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &public), text.as_bytes());
        assert_eq!(refused(&format!("{text}.{}", encode(code))), Wrong::Algorithm("HS256".into()));
        assert_eq!(refused(&stranger.sign(&header("ES256"), &good)), Wrong::Signature);
        assert_eq!(refused(&signer.sign(&json!({ "alg": "ES256", "kid": "k2" }), &good)), Wrong::Key);
        // An algorithm with a key of another kind.
        for alg in ["RS256", "PS256", "EdDSA"] {
            assert_eq!(refused(&signer.sign(&header(alg), &good)), Wrong::Key, "{alg}");
        }
        let critical = json!({ "alg": "ES256", "kid": "k1", "crit": ["exp"] });
        assert_eq!(refused(&signer.sign(&critical, &good)), Wrong::Form);
        let token = signer.sign(&header("ES256"), &good);
        let (head, rest) = token.split_once('.').unwrap();
        let other = encode(claims(|c| c["sub"] = "8".into()).to_string());
        let forged = format!("{head}.{other}.{}", rest.split_once('.').unwrap().1);
        assert_eq!(refused(&forged), Wrong::Signature);
        for nonsense in
            ["", "a", "a.b", "a.b.c", "..", "a.b.c.d", &format!("{token}.x"), &format!("{token}=")]
        {
            assert_eq!(refused(nonsense), Wrong::Form, "{nonsense}");
        }
        assert_eq!(judge(&token, &Keys::default()).unwrap_err(), Wrong::Key);
    }

    #[test]
    fn edwards_curves_are_known_too() {
        let key = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        let jwk = json!({ "kty": "OKP", "crv": "Ed25519", "x": encode(key.public_key()) });
        let keys: Keys = serde_json::from_value(json!({ "keys": [jwk] })).unwrap();
        let text = format!("{}.{}", encode(r#"{"alg":"EdDSA"}"#), encode(claims(|_| {}).to_string()));
        let token = format!("{text}.{}", encode(key.sign(text.as_bytes())));
        assert_eq!(judge(&token, &keys).unwrap().sub, "7");
    }
}
