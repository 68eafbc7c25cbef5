//! Authentication by certificate: digital signatures (RFC 7427, RFC 8420), chains to an authority, and who a certificate is
//! of (RFC 4945).
//!
//! A signature takes what randomness it needs from the operating system: `ring` lets it come from nowhere else.

use std::borrow::Cow;
use std::time::Duration;

use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    RSA_PSS_SHA256, RSA_PSS_SHA384, RSA_PSS_SHA512, RsaKeyPair,
};
use rustls_pki_types::{
    AlgorithmIdentifier, CertificateDer, DnsName, ServerName, SignatureVerificationAlgorithm, TrustAnchor,
    UnixTime, alg_id,
};
use webpki::{EndEntityCert, KeyUsage, ring as algorithms};

use crate::crypto::secret::Secret;
use crate::message::body::{Certificate, Identity};
use crate::numbers::number;

number! {
    /// A hash that signatures are made with (RFC 7427 §7).
    HashAlgorithm(u16) {
        /// SHA2-256.
        SHA2_256 = 2,
        /// SHA2-384.
        SHA2_384 = 3,
        /// SHA2-512.
        SHA2_512 = 4,
        /// None: the signature does that itself (RFC 8420).
        IDENTITY = 5,
    }
}

/// The hashes that this end verifies signatures with, as its notify has them.
pub(crate) const HASHES: [HashAlgorithm; 4] =
    [HashAlgorithm::SHA2_256, HashAlgorithm::SHA2_384, HashAlgorithm::SHA2_512, HashAlgorithm::IDENTITY];

/// Certificates of a chain: its length in practice is three.
const MAX_CERTIFICATES: usize = 8;

/// What signatures, of peers and of certificates, may be of.
static ALGORITHMS: [&dyn SignatureVerificationAlgorithm; 11] = [
    algorithms::ED25519,
    algorithms::ECDSA_P256_SHA256,
    algorithms::ECDSA_P256_SHA384,
    algorithms::ECDSA_P384_SHA256,
    algorithms::ECDSA_P384_SHA384,
    algorithms::RSA_PSS_2048_8192_SHA256_LEGACY_KEY,
    algorithms::RSA_PSS_2048_8192_SHA384_LEGACY_KEY,
    algorithms::RSA_PSS_2048_8192_SHA512_LEGACY_KEY,
    algorithms::RSA_PKCS1_2048_8192_SHA256,
    algorithms::RSA_PKCS1_2048_8192_SHA384,
    algorithms::RSA_PKCS1_2048_8192_SHA512,
];

/// What a certificate may be for, if it says so: id-kp-ipsecIKE (RFC 4945 §5.1.3.12), or what others put there.
static IPSEC_IKE: [u8; 8] = [0x2b, 6, 1, 5, 5, 7, 3, 17];

/// Why certificates cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// No certificate, or one that cannot be read.
    #[error("not a certificate")]
    NotACertificate,
    /// The private key is none of ECDSA P-256 or P-384, Ed25519 or RSA in PKCS#8.
    #[error("not a private key that can be used")]
    NotAPrivateKey,
    /// The private key is not that of the first certificate.
    #[error("the private key is not that of the certificate")]
    OtherKey,
}

/// What this end proves itself with, and whom it believes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificates {
    chain: Vec<CertificateDer<'static>>,
    private_key: Secret,
    authorities: Vec<CertificateDer<'static>>,
}

impl Certificates {
    /// This end's certificate with those between it and an authority, its private key (PKCS#8), and the certificates of
    /// the authorities that the other end's chain must lead to; all in DER.
    pub fn new(
        chain: Vec<Vec<u8>>,
        private_key: &[u8],
        authorities: Vec<Vec<u8>>,
    ) -> Result<Self, CertificateError> {
        let der = |certificates: Vec<Vec<u8>>| certificates.into_iter().map(CertificateDer::from).collect();
        let certificates = Self {
            chain: der(chain),
            private_key: Secret::new(private_key.to_vec()),
            authorities: der(authorities),
        };
        let readable = certificates
            .authorities
            .iter()
            .all(|authority| webpki::anchor_from_trusted_cert(authority).is_ok());
        let own = certificates.chain.first().ok_or(CertificateError::NotACertificate)?;
        let own = EndEntityCert::try_from(own).map_err(|_| CertificateError::NotACertificate)?;
        if !readable {
            return Err(CertificateError::NotACertificate);
        }
        let proof = certificates.sign(b"", &HASHES).ok_or(CertificateError::NotAPrivateKey)?;
        if is_signed_by(&own, &proof, b"") { Ok(certificates) } else { Err(CertificateError::OtherKey) }
    }

    /// Whether this end's certificate is of this identity: otherwise other ends will not believe that it is.
    pub fn is_of(&self, identity: &Identity) -> bool {
        let own = self.chain.first().and_then(|own| EndEntityCert::try_from(own).ok());
        own.is_some_and(|own| is_of(&own, identity))
    }

    /// Whether this end's certificate, or one between it and an authority, is not valid at this time, so long after 1970: as
    /// far as the authorities are known here.
    pub fn is_outdated(&self, unix_time: Duration) -> bool {
        use webpki::Error::{CertExpired, CertNotValidYet};
        let Some((own, between)) = self.chain.split_first() else { return false };
        let Ok(own) = EndEntityCert::try_from(own) else { return false };
        let (anchors, time) = (self.anchors(), UnixTime::since_unix_epoch(unix_time));
        let usage = KeyUsage::client_auth();
        let verified = own.verify_for_usage(&ALGORITHMS, &anchors, between, time, usage, None, None);
        matches!(verified, Err(CertExpired { .. } | CertNotValidYet { .. }))
    }

    /// The chain, as CERT payloads have it.
    pub(crate) fn chain(&self) -> impl Iterator<Item = &[u8]> {
        self.chain.iter().map(AsRef::as_ref)
    }

    /// SHA-1 of the public key of each authority, as CERTREQ has them (RFC 7296 §3.7).
    pub(crate) fn authority_hashes(&self) -> Vec<u8> {
        let mut hashes = Vec::new();
        for anchor in self.anchors() {
            let key = webpki::spki_for_anchor(&anchor);
            hashes.extend(ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, &key).as_ref());
        }
        hashes
    }

    fn anchors(&self) -> Vec<TrustAnchor<'_>> {
        self.authorities
            .iter()
            .filter_map(|authority| webpki::anchor_from_trusted_cert(authority).ok())
            .collect()
    }

    /// The data of AUTH over these octets (RFC 7427 §3), if the other end knows a hash that the key can be used with.
    pub(crate) fn sign(&self, octets: &[u8], hashes: &[HashAlgorithm]) -> Option<Vec<u8>> {
        let (algorithm, signature) = self.signature(octets, hashes)?;
        let content = algorithm.as_ref();
        let length = u8::try_from(content.len()).ok().filter(|length| *length < 126)?;
        // The length of an ASN.1 SEQUENCE, the SEQUENCE, the signature.
        Some([&[length + 2, 0x30, length], content, &signature].concat())
    }

    fn signature(&self, octets: &[u8], hashes: &[HashAlgorithm]) -> Option<(AlgorithmIdentifier, Vec<u8>)> {
        let (key, random) = (self.private_key.as_bytes(), SystemRandom::new());
        let knows = |hash| hashes.contains(&hash);
        if let Ok(key) = Ed25519KeyPair::from_pkcs8_maybe_unchecked(key) {
            let signature = knows(HashAlgorithm::IDENTITY).then(|| key.sign(octets))?;
            return Some((alg_id::ED25519, signature.as_ref().to_vec()));
        }
        for (algorithm, hash, id) in [
            (&ECDSA_P256_SHA256_ASN1_SIGNING, HashAlgorithm::SHA2_256, alg_id::ECDSA_SHA256),
            (&ECDSA_P384_SHA384_ASN1_SIGNING, HashAlgorithm::SHA2_384, alg_id::ECDSA_SHA384),
        ] {
            if let Ok(key) = EcdsaKeyPair::from_pkcs8(algorithm, key, &random) {
                let signature = knows(hash).then(|| key.sign(&random, octets).ok())??;
                return Some((id, signature.as_ref().to_vec()));
            }
        }
        let key = RsaKeyPair::from_pkcs8(key).ok()?;
        let mut signature = vec![0; key.public().modulus_len()];
        if knows(HashAlgorithm::SHA2_256) {
            key.sign(&RSA_PSS_SHA256, &random, octets, &mut signature).ok()?;
            Some((alg_id::RSA_PSS_SHA256, signature))
        } else if knows(HashAlgorithm::SHA2_384) {
            key.sign(&RSA_PSS_SHA384, &random, octets, &mut signature).ok()?;
            Some((alg_id::RSA_PSS_SHA384, signature))
        } else if knows(HashAlgorithm::SHA2_512) {
            key.sign(&RSA_PSS_SHA512, &random, octets, &mut signature).ok()?;
            Some((alg_id::RSA_PSS_SHA512, signature))
        } else {
            None
        }
    }

    /// Whether the other end has signed the octets with the key of its first certificate, which is of this identity and
    /// leads to an authority.
    pub(crate) fn verify<'a>(
        &self,
        payloads: impl Iterator<Item = Certificate<'a>>,
        proof: &[u8],
        octets: &[u8],
        identity: &Identity,
        unix_time: Duration,
    ) -> bool {
        let of_kind = payloads.filter(|payload| payload.encoding == Certificate::X509_SIGNATURE);
        let chain: Vec<_> =
            of_kind.take(MAX_CERTIFICATES).map(|payload| CertificateDer::from(payload.data)).collect();
        let Some((own, between)) = chain.split_first() else { return false };
        let Ok(own) = EndEntityCert::try_from(own) else { return false };
        let (anchors, time) = (self.anchors(), UnixTime::since_unix_epoch(unix_time));
        let usages =
            [KeyUsage::required_if_present(&IPSEC_IKE), KeyUsage::server_auth(), KeyUsage::client_auth()];
        let trusted = usages.into_iter().any(|usage| {
            own.verify_for_usage(&ALGORITHMS, &anchors, between, time, usage, None, None).is_ok()
        });
        trusted && is_of(&own, identity) && is_signed_by(&own, proof, octets)
    }
}

/// Whether the data of AUTH is a signature of the octets.
fn is_signed_by(certificate: &EndEntityCert<'_>, proof: &[u8], octets: &[u8]) -> bool {
    let Some((length, rest)) = proof.split_first() else { return false };
    let Some((algorithm, signature)) = rest.split_at_checked(usize::from(*length)) else { return false };
    let [0x30, inner, algorithm @ ..] = algorithm else { return false };
    if usize::from(*inner) != algorithm.len() {
        return false;
    }
    let algorithm = without_default_trailer(algorithm);
    // One identifier may stand for several curves: that of the key is the one that fits.
    let named = ALGORITHMS.iter().filter(|known| known.signature_alg_id().as_ref() == &*algorithm);
    named.into_iter().any(|known| certificate.verify_signature(*known, octets, signature).is_ok())
}

/// The identifier of RSASSA-PSS without its trailer field, which DER leaves out since it is the default, and which the examples
/// of RFC 7427 (appendix A.4.3) have nevertheless.
fn without_default_trailer(algorithm: &[u8]) -> Cow<'_, [u8]> {
    const RSASSA_PSS: [u8; 11] = [6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 10];
    const TRAILER: [u8; 5] = [0xa3, 3, 2, 1, 1];
    let parameters = algorithm.strip_prefix(&RSASSA_PSS).and_then(|rest| rest.strip_prefix(&[0x30]));
    let Some([length, rest @ ..]) = parameters else { return Cow::Borrowed(algorithm) };
    match rest.strip_suffix(&TRAILER) {
        Some(shorter) if usize::from(*length) == rest.len() => {
            Cow::Owned([&RSASSA_PSS[..], &[0x30, shorter.len() as u8], shorter].concat())
        }
        _ => Cow::Borrowed(algorithm),
    }
}

/// Whether the certificate is of this identity: a name or address among its subject's alternative ones, or the subject.
fn is_of(certificate: &EndEntityCert<'_>, identity: &Identity) -> bool {
    let is_named = |name| certificate.verify_is_valid_for_subject_name(&name).is_ok();
    match identity {
        Identity::Fqdn(name) => {
            DnsName::try_from(name.as_str()).is_ok_and(|name| is_named(ServerName::DnsName(name)))
        }
        Identity::Address(address) => is_named(ServerName::IpAddress((*address).into())),
        Identity::DistinguishedName(name) => sequence_content(name) == Some(certificate.subject()),
        Identity::Email(_) | Identity::KeyId(_) => false,
    }
}

/// What is inside of a DER SEQUENCE that is the whole of the bytes.
fn sequence_content(der: &[u8]) -> Option<&[u8]> {
    let (length, content) = match der {
        [0x30, length @ 0..=0x7f, content @ ..] => (usize::from(*length), content),
        [0x30, 0x81, length @ 0x80..=0xff, content @ ..] => (usize::from(*length), content),
        [0x30, 0x82, high @ 1..=0xff, low, content @ ..] => {
            (usize::from(u16::from_be_bytes([*high, *low])), content)
        }
        _ => return None,
    };
    (length == content.len()).then_some(content)
}

/// The hashes of a SIGNATURE_HASH_ALGORITHMS notify (RFC 7427 §4).
pub(crate) fn parse_hashes(data: &[u8]) -> Vec<HashAlgorithm> {
    let numbers = data.chunks_exact(2).map(|pair| HashAlgorithm(u16::from_be_bytes([pair[0], pair[1]])));
    numbers.filter(|hash| HASHES.contains(hash)).take(HASHES.len()).collect()
}

/// The data of such a notify.
pub(crate) fn hashes_to_bytes() -> Vec<u8> {
    HASHES.iter().flat_map(|hash| hash.0.to_be_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: &str) -> Certificates {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/certificates");
        let read = |name: String| std::fs::read(format!("{folder}/{name}")).unwrap();
        let (own, key) = (read(format!("a-{kind}.crt")), read(format!("a-{kind}.key")));
        Certificates::new(vec![own], &key, vec![read("authority.crt".to_owned())]).unwrap()
    }

    fn is_right(certificates: &Certificates, proof: &[u8]) -> bool {
        is_signed_by(&EndEntityCert::try_from(&certificates.chain[0]).unwrap(), proof, b"octets")
    }

    /// RFC 7427 appendix A, and RFC 8420 §2.
    #[test]
    fn identifiers_of_algorithms_are_those_of_the_rfcs() {
        for (kind, identifier) in [
            ("p256", "300a06082a8648ce3d040302"),
            ("p384", "300a06082a8648ce3d040303"),
            ("ed25519", "300506032b6570"),
        ] {
            let proof = of(kind).sign(b"octets", &HASHES).unwrap();
            let identifier = hex::decode(identifier).unwrap();
            assert_eq!(usize::from(proof[0]), identifier.len());
            assert_eq!(hex::encode(&proof[1..=identifier.len()]), hex::encode(identifier));
        }
    }

    #[test]
    fn rsassa_pss_is_understood_with_its_default_trailer_and_without() {
        let rsa = of("rsa");
        let proof = rsa.sign(b"octets", &HASHES).unwrap();
        let (identifier, signature) = proof[1..].split_at(proof[0].into());
        // As DER has it: without what is the default anyway.
        let short = "304106092a864886f70d01010a3034a00f300d06096086480165030402010500\
                     a11c301a06092a864886f70d010108300d06096086480165030402010500a203020120";
        assert_eq!(hex::encode(identifier), short);
        // RFC 7427 appendix A.4.3.
        let long = hex::decode(
            "304606092a864886f70d01010a3039a00f300d06096086480165030402010500\
             a11c301a06092a864886f70d010108300d06096086480165030402010500a203020120a303020101",
        )
        .unwrap();
        let with = |identifier: &[u8]| [&[identifier.len() as u8], identifier, signature].concat();
        assert!(is_right(&rsa, &with(identifier)) && is_right(&rsa, &with(&long)));
        let mut other = long.clone();
        // Another trailer, another length of the salt, another length of it all.
        for (at, byte) in [(long.len() - 1, 2), (long.len() - 6, 0x40), (16, 0x38), (1, 0x45)] {
            other.copy_from_slice(&long);
            other[at] = byte;
            assert!(!is_right(&rsa, &with(&other)), "{at}");
        }
    }

    /// RFC 7296 §3.6: who has not said HTTP_CERT_LOOKUP_SUPPORTED fetches nothing, and has to have the certificate itself.
    #[test]
    fn certificates_by_hash_and_url_are_passed_over() {
        const HASH_AND_URL: u8 = 12;
        let (own, identity) = (of("p256"), Identity::Fqdn("a.example".to_owned()));
        let proof = own.sign(b"octets", &HASHES).unwrap();
        let url = Certificate { encoding: HASH_AND_URL, data: b"01234567890123456789http://a.example/a.crt" };
        let whole = Certificate { encoding: Certificate::X509_SIGNATURE, data: own.chain[0].as_ref() };
        let time = Duration::from_secs(4_000_000_000);
        let verify = |payloads: Vec<Certificate<'_>>| {
            own.verify(payloads.into_iter(), &proof, b"octets", &identity, time)
        };
        assert!(verify(vec![url, whole]));
        assert!(!verify(vec![url]));
    }
}
