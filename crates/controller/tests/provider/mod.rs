//! An identity provider that is not there: it does as it should, and as it should not. For tests of whoever asks one.
#![allow(dead_code, reason = "not everybody who asks it tries all that it could do wrong")]

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use fleet::key::Digest;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response, StatusCode};
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

/// How a token is signed.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Signs {
    AsItShould,
    None,
    ByThePublicKey,
    ByAnother,
}

/// What an identity provider knows.
pub(crate) struct Known {
    pub(crate) issuer: String,
    pub(crate) key: EcdsaKeyPair,
    pub(crate) kid: String,
    /// Codes that nobody has used, with the nonce and the challenge that they were given for.
    pub(crate) codes: HashMap<String, (String, String)>,
    /// What is different in the next tokens.
    pub(crate) claims: Value,
    pub(crate) signs: Signs,
}

pub(crate) type Shared = Arc<Mutex<Known>>;

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// A key.
pub(crate) fn pair() -> EcdsaKeyPair {
    let (random, algorithm) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
    let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
    EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref(), &random).unwrap()
}

/// Seconds of Unix time.
pub(crate) fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
}

impl Known {
    fn token(&self, nonce: &str) -> String {
        let mut claims = json!({
            "iss": self.issuer, "sub": "7", "aud": "sidestep", "exp": now() + 300, "iat": now(), "nonce": nonce,
            "email": "ada@example.net", "email_verified": true, "groups": ["netops"],
        });
        claims.as_object_mut().unwrap().extend(self.claims.as_object().unwrap().clone());
        let alg = match self.signs {
            Signs::None => "none",
            Signs::ByThePublicKey => "HS256",
            Signs::AsItShould | Signs::ByAnother => "ES256",
        };
        let text = format!(
            "{}.{}",
            encode(json!({ "alg": alg, "kid": self.kid }).to_string()),
            encode(claims.to_string())
        );
        let sign =
            |key: &EcdsaKeyPair| key.sign(&SystemRandom::new(), text.as_bytes()).unwrap().as_ref().to_vec();
        let signature = match self.signs {
            Signs::None => Vec::new(),
            Signs::ByThePublicKey => {
                let key = hmac::Key::new(hmac::HMAC_SHA256, self.key.public_key().as_ref());
                hmac::sign(&key, text.as_bytes()).as_ref().to_vec()
            }
            Signs::AsItShould => sign(&self.key),
            Signs::ByAnother => sign(&pair()),
        };
        format!("{text}.{}", encode(signature))
    }

    /// What is answered at the token endpoint.
    fn exchange(
        &mut self,
        authorization: Option<&str>,
        form: &HashMap<String, String>,
    ) -> Result<Value, &'static str> {
        let basic = format!("Basic {}", STANDARD.encode("sidestep:s%3Acret"));
        if authorization != Some(basic.as_str()) {
            return Err("invalid_client");
        }
        let (nonce, challenged) =
            self.codes.remove(form.get("code").ok_or("invalid_request")?).ok_or("invalid_grant")?;
        let verifier = form.get("code_verifier").ok_or("invalid_request")?;
        if encode(Digest::of(verifier.as_bytes()).as_bytes()) != challenged {
            return Err("invalid_grant");
        }
        Ok(
            json!({ "access_token": "of no use here", "token_type": "Bearer", "id_token": self.token(&nonce) }),
        )
    }

    fn answer(&mut self, path: &str, authorization: Option<&str>, body: &[u8]) -> (StatusCode, Value) {
        let issuer = &self.issuer;
        match path {
            "/.well-known/openid-configuration" => (
                StatusCode::OK,
                json!({
                    "issuer": issuer, "authorization_endpoint": format!("{issuer}/authorize"),
                    "token_endpoint": format!("{issuer}/token"), "jwks_uri": format!("{issuer}/keys"), "more": [1],
                }),
            ),
            "/keys" => {
                let point = &self.key.public_key().as_ref()[1..];
                let key = json!({ "kty": "EC", "crv": "P-256", "kid": self.kid, "use": "sig", "x": encode(&point[..32]), "y": encode(&point[32..]) });
                (StatusCode::OK, json!({ "keys": [{ "kty": "oct", "k": "AA" }, key] }))
            }
            "/token" => {
                match self.exchange(authorization, &form_urlencoded::parse(body).into_owned().collect()) {
                    Ok(tokens) => (StatusCode::OK, tokens),
                    Err(error) => (StatusCode::BAD_REQUEST, json!({ "error": error })),
                }
            }
            _ => (StatusCode::NOT_FOUND, json!({})),
        }
    }
}

/// Answers at a port of this machine, within a runtime; writes into the folder how a controller asks it: who is in `netops` may
/// look, who is in `admins` may hand in. Browsers may come back to these places, too.
pub(crate) fn provide(folder: &Path, redirects: &[String]) -> Shared {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let issuer = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(folder.join("ca.pem"), made.cert.pem()).unwrap();
    let config = format!(
        r#"
issuer = "{issuer}"
client_id = "sidestep"
client_secret_file = "secret"
ca = "ca.pem"
redirects = {redirects:?}
role = [
    {{ role = "viewer", claim = "groups", value = "netops" }},
    {{ role = "publisher", claim = "groups", value = "admins" }},
]
"#
    );
    std::fs::write(folder.join("oidc.toml"), config).unwrap();
    std::fs::write(folder.join("secret"), "s:cret\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(folder.join("secret"), mode).unwrap();
    let key = rustls_pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let tls =
        ServerConfig::builder_with_provider(Arc::new(tokio_rustls::rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
    let known = Known {
        issuer,
        key: pair(),
        kid: "k1".to_owned(),
        codes: HashMap::new(),
        claims: json!({}),
        signs: Signs::AsItShould,
    };
    let shared = Arc::new(Mutex::new(known));
    let serving = Arc::clone(&shared);
    tokio::spawn(async move {
        let (listener, tls) =
            (tokio::net::TcpListener::from_std(listener).unwrap(), TlsAcceptor::from(Arc::new(tls)));
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (tls, known) = (tls.clone(), Arc::clone(&serving));
            tokio::spawn(async move {
                let Ok(stream) = tls.accept(stream).await else { return };
                let service = hyper::service::service_fn(move |request: Request<Incoming>| {
                    let known = Arc::clone(&known);
                    async move {
                        let (head, body) = request.into_parts();
                        let body = body.collect().await.unwrap().to_bytes();
                        let authorization =
                            head.headers.get("authorization").and_then(|value| value.to_str().ok());
                        let (status, answer) =
                            known.lock().unwrap().answer(head.uri.path(), authorization, &body);
                        let mut response = Response::new(Full::new(Bytes::from(answer.to_string())));
                        *response.status_mut() = status;
                        Ok::<_, Infallible>(response)
                    }
                });
                let io = hyper_util::rt::TokioIo::new(stream);
                let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
            });
        }
    });
    shared
}
