//! The secrets of a repository: one master key, and what each role holds of it.
//!
//! ```text
//! master key R (32 random bytes)      derive(x) = BLAKE3 derive_key("Larder format 2: " x, R)
//! ├ fingerprints  derive("chunk fingerprints")
//! ├ chunking      derive("chunk boundaries")        ├ runs  derive("runs of chunks")[..16]
//! ├ names         derive("names")                   domain and series in object names
//! ├ common        derive("common objects")          settings of all, closed domains
//! ├ domains       derive("domains")                 one key a domain: versions, leases, meta/
//! ├ bind          derive("data binding")            mixed into the keys of data frames
//! ├ open          derive("data opening")            private half of X-Wing; opens data frames
//! ├ index         derive("index")                   the global index and its runs
//! └ sign          derive("operator signing")        Ed25519; signs what may delete or replace
//! ```
//!
//! A **domain** is a machine, or machines that share one history. A backup key opens the metadata
//! of its own domain only. A repository with one password has the default domain, and nobody
//! notices.

use std::sync::Arc;

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::ids::{DomainId, SeriesKey};
use crate::kem::{OpeningPublic, OpeningSecret};
use crate::roles::Roles;
use crate::wire::{DecodeError, EncodeError};

/// Bytes of a signature.
pub const SIGNATURE_LEN: usize = 64;

/// The secret from which all others of a repository are derived. With it, one can read and write
/// everything.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct MasterKey(pub [u8; 32]);

impl std::fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MasterKey(..)")
    }
}

/// One secret of 32 bytes, wiped when it goes away.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct Secret(pub [u8; 32]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Secret {
    /// The key that a text gets under this one.
    pub(crate) fn keyed(&self, text: &[&[u8]]) -> Self {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        for part in text {
            hasher.update(part);
        }
        Self(*hasher.finalize().as_bytes())
    }

    pub(crate) fn first_half(&self) -> [u8; 16] {
        let mut half = [0; 16];
        half.copy_from_slice(&self.0[..16]);
        half
    }
}

/// What cutting needs: only writers have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CutSecrets {
    /// Orders the chunk boundaries, so that sizes do not tell an outsider where known data is cut.
    pub chunking: Secret,
    /// Its first half keys the MACs over runs of chunks (`larder_chunking::RunMac`), and nothing
    /// else.
    pub runs: Secret,
}

/// Whose metadata a key opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DomainSecrets {
    /// That of every domain: the secret from which the domains' keys come.
    All(Secret),
    /// That of these domains.
    Some(Vec<(DomainId, Secret)>),
}

/// What a role holds: the payload of a key object, or what the master key gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Secrets {
    /// What the holder may do.
    pub roles: Roles,
    /// The domain of its own jobs.
    pub domain: DomainId,
    /// Its name; empty for the default domain.
    pub domain_name: String,
    /// How often domains of this name were closed before.
    pub domain_epoch: u32,
    /// Only the role `all`.
    pub master: Option<MasterKey>,
    /// Keys the chunks' fingerprints.
    pub fingerprints: Secret,
    /// Only who backs up.
    pub cuts: Option<CutSecrets>,
    /// Keys series and domains in object names.
    pub names: Secret,
    /// Seals what every role reads.
    pub common: Secret,
    /// Seals metadata.
    pub domains: DomainSecrets,
    /// Mixed into the keys of data frames, so that the public half alone makes no container.
    pub bind: Option<Secret>,
    /// Only who restores.
    pub open: Option<OpeningSecret>,
    /// Seals the index.
    pub index: Option<Secret>,
    /// Only who operates: the seed of the operator's signing key.
    pub sign: Option<Secret>,
    /// Hash of the public half that data is sealed to: another one is refused.
    pub opening_hash: [u8; 32],
    /// Verifies the operator's signatures.
    pub operator_public: [u8; 32],
    /// Marks what this machine has written itself.
    pub witness: Option<Secret>,
}

impl std::fmt::Debug for OpeningSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OpeningSecret(..)")
    }
}

impl PartialEq for OpeningSecret {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for OpeningSecret {}

impl Secrets {
    /// Everything that the master key gives.
    pub fn of(master: &MasterKey) -> Self {
        let key = |context: &str| Secret(blake3::derive_key(context, &master.0));
        let open = OpeningSecret(key("Larder format 2: data opening").0);
        let sign = key("Larder format 2: operator signing");
        Self {
            roles: Roles::ALL,
            domain: DomainId::DEFAULT,
            domain_name: String::new(),
            domain_epoch: 0,
            master: Some(master.clone()),
            fingerprints: key("Larder format 2: chunk fingerprints"),
            cuts: Some(CutSecrets {
                chunking: key("Larder format 2: chunk boundaries"),
                runs: key("Larder format 2: runs of chunks"),
            }),
            names: key("Larder format 2: names"),
            common: key("Larder format 2: common objects"),
            domains: DomainSecrets::All(key("Larder format 2: domains")),
            bind: Some(key("Larder format 2: data binding")),
            opening_hash: open.public().fingerprint(),
            open: Some(open),
            index: Some(key("Larder format 2: index")),
            operator_public: signing_pair(&sign).public_key().as_ref().try_into().expect("32 bytes"),
            sign: Some(sign),
            witness: None,
        }
    }

    /// The part of these secrets that a role needs. `domain` is that of a role that backs up;
    /// `witness` is drawn for the key.
    pub fn for_roles(&self, roles: Roles, domain: DomainId, witness: Option<Secret>) -> Result<Self, EncodeError> {
        let (backs_up, restores, operates) =
            (roles.holds(Roles::BACKUP), roles.holds(Roles::RESTORE), roles.holds(Roles::OPERATE));
        let lacks = || EncodeError::new("key", "the key in use cannot make it");
        let is_there = (!roles.is_all() || self.master.is_some())
            && (!backs_up || self.cuts.is_some())
            && (!(backs_up || restores) || self.bind.is_some())
            && (!restores || self.open.is_some())
            && (!(restores || operates) || self.index.is_some())
            && (!operates || self.sign.is_some());
        let DomainSecrets::All(domains) = &self.domains else { return Err(lacks()) };
        if !is_there {
            return Err(lacks());
        }
        // What is sealed in the default domain counts for every job, so no machine alone has its
        // secret.
        if roles == Roles::BACKUP && domain.is_default() {
            return Err(EncodeError::new("key", "a key that may only back up needs a domain of its own"));
        }
        if roles.is_all() {
            return Ok(Self { domain, witness, ..self.clone() });
        }
        let own = || DomainSecrets::Some(vec![(domain, domain_secret(domains, domain))]);
        Ok(Self {
            roles,
            domain,
            master: None,
            cuts: self.cuts.clone().filter(|_| backs_up),
            domains: if restores || operates { self.domains.clone() } else { own() },
            bind: self.bind.clone().filter(|_| backs_up || restores),
            open: self.open.clone().filter(|_| restores),
            index: self.index.clone().filter(|_| restores || operates),
            sign: self.sign.clone().filter(|_| operates),
            witness,
            ..self.clone()
        })
    }
}

fn domain_secret(domains: &Secret, domain: DomainId) -> Secret {
    domains.keyed(&[&domain.0])
}

fn signing_pair(seed: &Secret) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&seed.0).expect("any 32 bytes are an Ed25519 seed")
}

/// The keys in daily use: the [`Secrets`] of a role, ready for work. Cheap to share.
#[derive(Clone)]
pub struct Keys {
    secrets: Arc<Secrets>,
    opening: Arc<OpeningPublic>,
    signing: Option<Arc<Ed25519KeyPair>>,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keys({})", self.secrets.roles)
    }
}

impl Keys {
    /// All keys, from the master key.
    pub fn derive(master: &MasterKey) -> Self {
        let secrets = Secrets::of(master);
        let opening = secrets.open.as_ref().expect("the master key gives all").public();
        Self::with(secrets, opening)
    }

    /// The keys of a role. Refuses a public half that is not the one that the payload names: data
    /// would be sealed to somebody else.
    pub fn of(secrets: Secrets, opening: OpeningPublic) -> Result<Self, DecodeError> {
        if opening.fingerprint() != secrets.opening_hash {
            return Err(DecodeError::NotAuthentic { what: "opening key" });
        }
        Ok(Self::with(secrets, opening))
    }

    fn with(secrets: Secrets, opening: OpeningPublic) -> Self {
        let signing = secrets.sign.as_ref().map(|seed| Arc::new(signing_pair(seed)));
        Self { secrets: Arc::new(secrets), opening: Arc::new(opening), signing }
    }

    /// The same keys, whose own domain is another one: what is made with them belongs there. `None`
    /// for keys of some domains only.
    pub fn in_domain(&self, name: &str, epoch: u32) -> Option<Self> {
        if !self.is_for_all_domains() {
            return None;
        }
        let secrets = Secrets {
            domain: self.domain_id(name, epoch),
            domain_name: name.to_owned(),
            domain_epoch: epoch,
            ..Secrets::clone(&self.secrets)
        };
        Some(Self { secrets: Arc::new(secrets), ..self.clone() })
    }

    /// Whether they open the metadata of every domain.
    pub fn is_for_all_domains(&self) -> bool {
        matches!(self.secrets.domains, DomainSecrets::All(_))
    }

    /// What they were made of.
    pub fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// What their holder may do.
    pub fn roles(&self) -> Roles {
        self.secrets.roles
    }

    /// The domain of the holder's own jobs.
    pub fn domain(&self) -> DomainId {
        self.secrets.domain
    }

    /// The public half that data is sealed to.
    pub fn opening_public(&self) -> &OpeningPublic {
        &self.opening
    }

    /// Keys the chunks' fingerprints.
    pub fn fingerprint(&self) -> &[u8; 32] {
        &self.secrets.fingerprints.0
    }

    /// What cutting needs; `None` for a key that may not back up.
    pub fn cuts(&self) -> Option<&CutSecrets> {
        self.secrets.cuts.as_ref()
    }

    /// The id of a domain by its name and epoch. The empty name is the default domain.
    pub fn domain_id(&self, name: &str, epoch: u32) -> DomainId {
        if name.is_empty() {
            return DomainId::DEFAULT;
        }
        DomainId(self.secrets.names.keyed(&[b"domain\0", &epoch.to_le_bytes(), name.as_bytes()]).first_half())
    }

    /// The hash of a series name in object names, for a series of the holder's own domain.
    pub fn series_key(&self, name: &str) -> SeriesKey {
        self.series_key_in(self.secrets.domain, name)
    }

    /// The same for a series of any domain.
    pub fn series_key_in(&self, domain: DomainId, name: &str) -> SeriesKey {
        // The domain has a fixed length, so the rest can only be the name.
        SeriesKey(self.secrets.names.keyed(&[b"series\0", &domain.0, name.as_bytes()]).first_half())
    }

    /// What seals the metadata of a domain.
    pub(crate) fn domain_secret(&self, domain: DomainId, what: &'static str) -> Result<Secret, DecodeError> {
        match &self.secrets.domains {
            DomainSecrets::All(domains) => Ok(domain_secret(domains, domain)),
            DomainSecrets::Some(known) => match known.iter().find(|(id, _)| *id == domain) {
                Some((_, secret)) => Ok(secret.clone()),
                None => Err(DecodeError::KeyLacks { what, needs: Roles::RESTORE }),
            },
        }
    }

    pub(crate) fn common(&self) -> &Secret {
        &self.secrets.common
    }

    pub(crate) fn index(&self, what: &'static str) -> Result<&Secret, DecodeError> {
        self.secrets.index.as_ref().ok_or(DecodeError::KeyLacks { what, needs: Roles::OPERATE })
    }

    pub(crate) fn bind(&self, what: &'static str) -> Result<&Secret, DecodeError> {
        self.secrets.bind.as_ref().ok_or(DecodeError::KeyLacks { what, needs: Roles::RESTORE })
    }

    pub(crate) fn open(&self, what: &'static str) -> Result<&OpeningSecret, DecodeError> {
        self.secrets.open.as_ref().ok_or(DecodeError::KeyLacks { what, needs: Roles::RESTORE })
    }

    /// Signs as the operator; `None` for a key that may not.
    pub(crate) fn sign(&self, message: &[u8]) -> Option<[u8; SIGNATURE_LEN]> {
        let signature = self.signing.as_ref()?.sign(message);
        Some(signature.as_ref().try_into().expect("an Ed25519 signature has 64 bytes"))
    }

    /// Whether the operator signed this.
    pub(crate) fn is_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        verify(&self.secrets.operator_public, message, signature)
    }

    /// Whether these keys can sign.
    pub fn can_sign(&self) -> bool {
        self.signing.is_some()
    }

    /// The public half of the operator's key.
    pub fn operator_public(&self) -> &[u8; 32] {
        &self.secrets.operator_public
    }

    /// The master key, if these are all keys.
    pub fn master(&self) -> Option<&MasterKey> {
        self.secrets.master.as_ref()
    }

    /// A buffer of the first half of the secret for MACs over runs of chunks.
    pub fn run_mac(&self) -> Option<Zeroizing<[u8; 16]>> {
        self.cuts().map(|cuts| Zeroizing::new(cuts.runs.first_half()))
    }
}

/// Whether an Ed25519 signature is genuine.
pub(crate) fn verify(public: &[u8; 32], message: &[u8], signature: &[u8]) -> bool {
    UnparsedPublicKey::new(&ED25519, public).verify(message, signature).is_ok()
}

#[cfg(test)]
mod tests;
