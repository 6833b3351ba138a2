//! The payload of a key object: a CBOR map of the secrets of its role. That of the role `all` has
//! the master key alone; everything else follows from it.

use minicbor::bytes::ByteArray;
use minicbor::{Decode, Encode};
use zeroize::Zeroizing;

use crate::cbor;
use crate::ids::DomainId;
use crate::kem::OpeningSecret;
use crate::keys::{CutSecrets, DomainSecrets, MasterKey, Secret, Secrets};
use crate::roles::Roles;
use crate::wire::DecodeError;

const WHAT: &str = "payload of a key";

type Bytes = ByteArray<32>;

#[derive(Encode, Decode)]
#[cbor(map)]
struct Domain {
    #[n(0)]
    id: DomainId,
    #[n(1)]
    secret: Bytes,
}

/// See `keys.rs` for what each is.
#[derive(Default, Encode, Decode)]
#[cbor(map)]
struct Payload {
    #[n(0)]
    roles: Option<Roles>,
    #[n(1)]
    domain: Option<DomainId>,
    #[n(2)]
    master: Option<Bytes>,
    #[n(3)]
    fingerprints: Option<Bytes>,
    #[n(4)]
    chunking: Option<Bytes>,
    #[n(5)]
    runs: Option<Bytes>,
    #[n(6)]
    names: Option<Bytes>,
    #[n(7)]
    common: Option<Bytes>,
    /// The secret of all domains.
    #[n(8)]
    domains: Option<Bytes>,
    /// Those of some domains: its own, and earlier epochs of it.
    #[n(9)]
    some_domains: Option<Vec<Domain>>,
    #[n(10)]
    bind: Option<Bytes>,
    #[n(11)]
    open: Option<Bytes>,
    #[n(12)]
    index: Option<Bytes>,
    #[n(13)]
    sign: Option<Bytes>,
    #[n(14)]
    opening_hash: Option<Bytes>,
    #[n(15)]
    operator_public: Option<Bytes>,
    #[n(16)]
    witness: Option<Bytes>,
}

fn bytes(secret: &Secret) -> Bytes {
    secret.0.into()
}

fn secret(bytes: Bytes) -> Secret {
    Secret(bytes.into())
}

/// Encodes the payload.
pub(super) fn encode(secrets: &Secrets) -> Zeroizing<Vec<u8>> {
    let witness = secrets.witness.as_ref().map(bytes);
    let (roles, domain) = (Some(secrets.roles), Some(secrets.domain));
    if let Some(master) = &secrets.master {
        let payload = Payload { roles, domain, master: Some(master.0.into()), witness, ..Payload::default() };
        return Zeroizing::new(cbor::encode(&payload));
    }
    let (domains, some_domains) = match &secrets.domains {
        DomainSecrets::All(secret) => (Some(bytes(secret)), None),
        DomainSecrets::Some(some) => {
            let row = |(id, secret): &(DomainId, Secret)| Domain { id: *id, secret: bytes(secret) };
            (None, Some(some.iter().map(row).collect()))
        }
    };
    Zeroizing::new(cbor::encode(&Payload {
        roles,
        domain,
        master: None,
        fingerprints: Some(bytes(&secrets.fingerprints)),
        chunking: secrets.cuts.as_ref().map(|cuts| bytes(&cuts.chunking)),
        runs: secrets.cuts.as_ref().map(|cuts| bytes(&cuts.runs)),
        names: Some(bytes(&secrets.names)),
        common: Some(bytes(&secrets.common)),
        domains,
        some_domains,
        bind: secrets.bind.as_ref().map(bytes),
        open: secrets.open.as_ref().map(|open| open.0.into()),
        index: secrets.index.as_ref().map(bytes),
        sign: secrets.sign.as_ref().map(bytes),
        opening_hash: Some(secrets.opening_hash.into()),
        operator_public: Some(secrets.operator_public.into()),
        witness,
    }))
}

/// Decodes the payload. Refuses one that lacks what its role needs.
pub(super) fn decode(bytes: &[u8]) -> Result<Secrets, DecodeError> {
    let payload: Payload = cbor::decode(bytes, WHAT)?;
    let lacks = || DecodeError::invalid(WHAT, "a secret of its role is missing");
    let (roles, domain) = (payload.roles.ok_or_else(lacks)?, payload.domain.ok_or_else(lacks)?);
    let witness = payload.witness.map(secret);
    if roles.is_all() {
        let master = MasterKey(payload.master.ok_or_else(lacks)?.into());
        return Ok(Secrets { domain, witness, ..Secrets::of(&master) });
    }
    let needed = |bytes: Option<Bytes>| bytes.map(secret).ok_or_else(lacks);
    // What a role does not need is not taken, so the role alone says what a key can do.
    let of_role = |holds: bool, bytes: Option<Bytes>| if holds { needed(bytes).map(Some) } else { Ok(None) };
    let (backs_up, restores, operates) =
        (roles.holds(Roles::BACKUP), roles.holds(Roles::RESTORE), roles.holds(Roles::OPERATE));
    let cuts = match (of_role(backs_up, payload.chunking)?, of_role(backs_up, payload.runs)?) {
        (Some(chunking), Some(runs)) => Some(CutSecrets { chunking, runs }),
        _ => None,
    };
    let domains = if restores || operates {
        DomainSecrets::All(needed(payload.domains)?)
    } else {
        let some = payload.some_domains.filter(|some| some.iter().any(|row| row.id == domain)).ok_or_else(lacks)?;
        DomainSecrets::Some(some.into_iter().map(|row| (row.id, secret(row.secret))).collect())
    };
    Ok(Secrets {
        roles,
        domain,
        domain_name: String::new(),
        domain_epoch: 0,
        master: None,
        fingerprints: needed(payload.fingerprints)?,
        cuts,
        names: needed(payload.names)?,
        common: needed(payload.common)?,
        domains,
        bind: of_role(backs_up || restores, payload.bind)?,
        open: of_role(restores, payload.open)?.map(|open| OpeningSecret(open.0)),
        index: of_role(restores || operates, payload.index)?,
        sign: of_role(operates, payload.sign)?,
        opening_hash: payload.opening_hash.ok_or_else(lacks)?.into(),
        operator_public: payload.operator_public.ok_or_else(lacks)?.into(),
        witness,
    })
}
