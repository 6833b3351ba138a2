//! Who may ask: a user with a password, or all programs of this machine.

use blake3::Hash;
use data_encoding::BASE64;
use http::header::{AUTHORIZATION, HOST};
use http::{HeaderMap, HeaderValue};

/// A user and a password, as basic authentication has them. Only their hash is kept.
#[derive(Debug, Clone)]
pub struct Credentials(Hash);

impl Credentials {
    /// Those of a user. `None`: a name cannot be empty, nor have a colon, because it ends there.
    pub fn new(user: &str, password: &[u8]) -> Option<Self> {
        (!user.is_empty() && !user.contains(':')).then(|| Self(hash(&[user.as_bytes(), b":", password])))
    }

    /// Whether a request has them. Hashes are compared in constant time.
    fn are_in(&self, sent: &HeaderValue) -> bool {
        let sent = sent.as_bytes();
        let Some((scheme, rest)) = sent.split_at_checked(6) else { return false };
        let decoded = BASE64.decode(rest.trim_ascii());
        scheme.eq_ignore_ascii_case(b"basic ") && decoded.is_ok_and(|sent| hash(&[&sent]) == self.0)
    }
}

fn hash(parts: &[&[u8]]) -> Hash {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize()
}

/// Headers of requests that a proxy passes on.
const FORWARDED: [&str; 4] = ["forwarded", "x-forwarded-for", "x-forwarded-host", "via"];

/// Which requests are answered.
#[derive(Debug, Clone)]
pub(crate) enum Access {
    /// Those with the password.
    Password(Credentials),
    /// Those of programs on this machine. Pages in a browser are not: their host is another one,
    /// even if its name was made to lead here.
    Local,
    /// All.
    Everybody,
}

/// Why a request is not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denied {
    /// It has no password.
    NoPassword,
    /// It has a wrong one.
    WrongPassword,
    /// It was made for another host, or on another one.
    OtherHost,
}

impl Access {
    /// Looks at the head of a request.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), Denied> {
        match self {
            Self::Everybody => Ok(()),
            // A proxy would let everybody in.
            Self::Local if FORWARDED.iter().any(|name| headers.contains_key(*name)) => Err(Denied::OtherHost),
            Self::Local if headers.get_all(HOST).iter().all(is_here) => Ok(()),
            Self::Local => Err(Denied::OtherHost),
            Self::Password(credentials) => {
                let mut sent = headers.get_all(AUTHORIZATION).iter();
                match (sent.next(), sent.next()) {
                    (None, _) => Err(Denied::NoPassword),
                    (Some(sent), None) if credentials.are_in(sent) => Ok(()),
                    _ => Err(Denied::WrongPassword),
                }
            }
        }
    }
}

/// Whether a host is an address, or the name that always means this machine.
fn is_here(host: &HeaderValue) -> bool {
    let Ok(host) = host.to_str() else { return false };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<std::net::IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(access: &Access, name: http::HeaderName, values: &[&str]) -> Result<(), Denied> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(name.clone(), HeaderValue::from_str(value).expect("a value"));
        }
        access.check(&headers)
    }

    #[test]
    fn only_the_password_opens() {
        let access = Access::Password(Credentials::new("ann", b"a:b").expect("a name"));
        let of = |text: &str| format!("Basic {}", BASE64.encode(text.as_bytes()));
        let right = of("ann:a:b");
        let check = |values: &[&str]| check(&access, AUTHORIZATION, values);
        assert_eq!([check(&[&right]), check(&[&right.replace("Basic", "bAsIC")])], [Ok(()); 2]);
        assert_eq!(check(&[]), Err(Denied::NoPassword));
        let token = right.replace("Basic", "Token");
        let wrong = [of("ann:a:c"), of("ann:a:b "), of("ann:"), of("anna::b"), of(""), token];
        for sent in wrong.iter().map(String::as_str).chain(["Basic", "Basic *", "", "Bas"]) {
            assert_eq!(check(&[sent]), Err(Denied::WrongPassword), "{sent}");
        }
        assert_eq!(check(&[&right, &right]), Err(Denied::WrongPassword));
        assert!(Credentials::new("a:b", b"c").is_none() && Credentials::new("", b"c").is_none());
    }

    #[test]
    fn pages_of_other_hosts_are_refused() {
        let check = |hosts: &[&str]| check(&Access::Local, HOST, hosts);
        for here in ["localhost:8080", "127.0.0.1", "127.0.0.1:80", "[::1]:8080", "LocalHost"] {
            assert_eq!(check(&[here]), Ok(()), "{here}");
        }
        assert_eq!(check(&[]), Ok(()));
        for other in ["example.org", "localhost.example.org:80", "127.0.0.1.example.org", "[example.org]", ""] {
            assert_eq!(check(&[other]), Err(Denied::OtherHost), "{other}");
        }
        assert_eq!(check(&["localhost", "example.org"]), Err(Denied::OtherHost));
        for proxy in FORWARDED {
            let mut headers = HeaderMap::from_iter([(HOST, HeaderValue::from_static("localhost"))]);
            headers.insert(proxy, HeaderValue::from_static("192.0.2.1"));
            assert_eq!(Access::Local.check(&headers), Err(Denied::OtherHost), "{proxy}");
        }
    }
}
