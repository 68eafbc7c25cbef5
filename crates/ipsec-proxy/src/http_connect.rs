//! CONNECT of HTTP/1.1 (RFC 9110 §9.3.6), as a proxy: nothing else, so that nothing of a request is rewritten. Passwords come
//! by the scheme Basic (RFC 7617).

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use crate::passwords::Credentials;
use crate::target::Target;

/// The longest head of a request.
pub const MAX_HEAD: usize = 8192;
/// Fields of a request.
const MAX_FIELDS: usize = 64;

/// The answer when there is a connection.
pub const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// How else a request ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It is no request, or names no host and port.
    BadRequest,
    /// It is not CONNECT.
    MethodNotAllowed,
    /// It needs a password, or another.
    PasswordRequired,
    /// It is too long, or has too many fields.
    TooLarge,
    /// The name leads nowhere, or the other end refuses.
    BadGateway,
    /// There is no tunnel, or there are too many clients.
    Unavailable,
    /// It takes too long.
    GatewayTimeout,
}

impl Refusal {
    /// The message.
    pub const fn message(self) -> &'static [u8] {
        match self {
            Self::BadRequest => b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
            Self::MethodNotAllowed => {
                b"HTTP/1.1 405 Method Not Allowed\r\nAllow: CONNECT\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
            }
            Self::PasswordRequired => {
                b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=\"tunnel\"\r\n\
                Connection: close\r\nContent-Length: 0\r\n\r\n"
            }
            Self::TooLarge => {
                b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
            }
            Self::BadGateway => b"HTTP/1.1 502 Bad Gateway\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
            Self::Unavailable => {
                b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
            }
            Self::GatewayTimeout => {
                b"HTTP/1.1 504 Gateway Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
            }
        }
    }
}

/// What a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Where to.
    pub target: Target,
    /// Who it is from, if it says so.
    pub credentials: Option<Credentials>,
}

/// Reads a request out of all that has come so far, and says how long it was; `None`: it is not all there.
///
/// # Errors
/// [`Refusal`], to be answered.
pub fn request(bytes: &[u8]) -> Result<Option<(usize, Asked)>, Refusal> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => {
            if request.method != Some("CONNECT") {
                return Err(Refusal::MethodNotAllowed);
            }
            let target = request.path.unwrap_or_default().parse().map_err(|_| Refusal::BadRequest)?;
            let mut fields = request.headers.iter();
            let field = fields.find(|field| field.name.eq_ignore_ascii_case("Proxy-Authorization"));
            let credentials = field.and_then(|field| basic(field.value));
            Ok(Some((length, Asked { target, credentials })))
        }
        Ok(httparse::Status::Partial) if bytes.len() >= MAX_HEAD => Err(Refusal::TooLarge),
        Ok(httparse::Status::Partial) => Ok(None),
        Err(httparse::Error::TooManyHeaders) => Err(Refusal::TooLarge),
        Err(_) => Err(Refusal::BadRequest),
    }
}

/// What the scheme Basic says.
fn basic(value: &[u8]) -> Option<Credentials> {
    let (scheme, rest) = value.split_at_checked(6)?;
    let is_basic = scheme.eq_ignore_ascii_case(b"basic ");
    is_basic.then(|| BASE64_STANDARD.decode(rest.trim_ascii()).ok().map(Credentials::new))?
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn connect_is_read_and_nothing_else() {
        let asked = b"CONNECT www.example:443 HTTP/1.1\r\nHost: www.example:443\r\n\r\n\x16early";
        let (length, Asked { target, credentials }) = request(asked).unwrap().unwrap();
        assert_eq!(credentials, None);
        assert_eq!((&asked[length..], target.to_string()), (&b"\x16early"[..], "www.example:443".into()));
        assert_eq!(request(b"CONNECT [2001:db8::1]:1 HTTP/1.1\r\n"), Ok(None));
        assert_eq!(request(b"GET http://www.example/ HTTP/1.1\r\n\r\n"), Err(Refusal::MethodNotAllowed));
        assert_eq!(request(b"CONNECT www.example HTTP/1.1\r\n\r\n"), Err(Refusal::BadRequest));
        assert_eq!(request(b"\x05\x01\x00"), Err(Refusal::BadRequest));
        let long = [b"CONNECT a:1 HTTP/1.1\r\nA: ".to_vec(), vec![b'a'; MAX_HEAD]].concat();
        assert_eq!(request(&long), Err(Refusal::TooLarge));
        let many = format!("CONNECT a:1 HTTP/1.1\r\n{}\r\n", "A: a\r\n".repeat(MAX_FIELDS + 1));
        assert_eq!(request(many.as_bytes()), Err(Refusal::TooLarge));
    }

    #[test]
    fn a_password_comes_by_the_scheme_basic() {
        let with = |field: &str| {
            let text = format!("CONNECT a:1 HTTP/1.1\r\n{field}\r\n\r\n");
            request(text.as_bytes()).unwrap().unwrap().1.credentials.map(|credentials| credentials.to_vec())
        };
        assert_eq!(with("Proxy-Authorization: Basic YW5uOnNlY3JldA=="), Some(b"ann:secret".to_vec()));
        assert_eq!(with("proxy-authorization: basic  YW5uOnNlY3JldA== "), Some(b"ann:secret".to_vec()));
        for other in [
            "Authorization: Basic YW5uOnNlY3JldA==",
            "Proxy-Authorization: Bearer x",
            "Proxy-Authorization: Basic ?",
        ] {
            assert_eq!(with(other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = request(&bytes);
            let _ = request(&[&b"CONNECT "[..], &bytes].concat());
        }
    }
}
