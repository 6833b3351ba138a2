//! Closed domains: how an operator ends what a stolen backup key can still do.
//!
//! Removing a key object keeps nobody out who has copied its payload: that holder may still create
//! versions of its domain. So the operator closes the domain (`larder_format::closed_domain`), and
//! names the versions that count. Listings refuse every other version of the domain
//! ([`Catalog::refused`](crate::catalog::Catalog)), and maintenance forgets those of them that were
//! made after the closing by the store's clock. So passes collect them as any forgotten version. A
//! version that is older and not named was not listed at the closing. People decide about it.
//!
//! The default domain is not closed, because it belongs to all. A name can be used again: its next
//! epoch is another domain.
//!
//! An object that does not open closes nothing, because anybody may create it. Listings and `check`
//! report it.

use std::collections::{BTreeSet, HashMap, HashSet};

use futures::StreamExt;
use larder_format::closed_domain::{CLOSED_DOMAIN_MAX, ClosedDomain, VersionDigest};
use larder_format::ids::{DomainId, KeyId, SeriesKey};
use larder_format::manifest::Summary;
use larder_format::names;
use larder_format::roles::Roles;

use crate::StoreErrorKind;
use crate::forget_marks::read_if_there;
use crate::repository::{CONCURRENT_READS, Repository, RepositoryError, random};

/// The end of a domain, and when its object was made by the store's clock (0: it does not say).
#[derive(Debug)]
struct Closing {
    end: ClosedDomain,
    made_ms: u64,
}

/// The closed domains of a repository.
#[derive(Debug, Default)]
pub struct ClosedDomains {
    domains: HashMap<DomainId, Closing>,
    /// All domains with an object, whether it opens or not.
    named: HashSet<DomainId>,
    /// Objects that do not open, with their errors, by name. They close nothing.
    pub faulty: Vec<(String, RepositoryError)>,
}

impl ClosedDomains {
    /// Whether no domain is closed.
    pub fn is_empty(&self) -> bool {
        self.domains.is_empty()
    }

    /// The domains that are closed.
    pub fn ids(&self) -> impl Iterator<Item = DomainId> {
        self.domains.keys().copied()
    }

    /// Whether a domain is closed.
    pub fn contains(&self, domain: DomainId) -> bool {
        self.domains.contains_key(&domain)
    }

    /// Whether a version does not count, because its domain is closed and does not name it.
    pub fn refuses(&self, series: SeriesKey, summary: &Summary) -> bool {
        let closing = self.domains.get(&summary.domain);
        closing.is_some_and(|closing| !closing.end.admits(VersionDigest::of(series, summary)))
    }

    /// Whether this domain was closed before a moment, in milliseconds by the store's clock. Nobody
    /// but the store can set that. `false` where the store does not say.
    pub fn was_closed_before(&self, domain: DomainId, moment_ms: u64) -> bool {
        let closing = self.domains.get(&domain);
        closing.is_some_and(|closing| closing.made_ms > 0 && closing.made_ms < moment_ms)
    }

    /// The first epoch of a name without an object that closes it, or that claims to.
    fn open_epoch(&self, repository: &Repository, name: &str) -> u32 {
        let is_named = |epoch: &u32| self.named.contains(&repository.keys.domain_id(name, *epoch));
        (0..).find(|epoch| !is_named(epoch)).unwrap_or(u32::MAX)
    }
}

impl Repository {
    /// Reads the ends of all closed domains. Asks the store, never a cache.
    pub async fn closed_domains(&self) -> Result<ClosedDomains, RepositoryError> {
        let store = self.store.without_cache();
        let listed = store.list(names::CLOSED).await?;
        let parse = |object: &crate::Listed| Some((names::parse_closed(&object.name)?, object.made_ms()));
        let domains: Vec<_> = listed.iter().filter_map(parse).collect();
        let reads = domains.into_iter();
        let reads = reads.map(|(domain, made_ms)| async move { (domain, made_ms, self.closed_domain(domain).await) });
        let mut reads = futures::stream::iter(reads).buffer_unordered(CONCURRENT_READS);
        let mut closed = ClosedDomains::default();
        while let Some((domain, made_ms, read)) = reads.next().await {
            closed.named.insert(domain);
            match read {
                Ok(found) => closed.domains.extend(found.map(|end| (domain, Closing { end, made_ms }))),
                Err(error) if error.is_of_object() => closed.faulty.push((names::closed(domain), error)),
                Err(error) => return Err(error),
            }
        }
        closed.faulty.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(closed)
    }

    /// The end of one domain, if it is closed.
    pub async fn closed_domain(&self, domain: DomainId) -> Result<Option<ClosedDomain>, RepositoryError> {
        let name = names::closed(domain);
        let store = self.store.without_cache();
        let Some(bytes) = read_if_there(&store, &name, CLOSED_DOMAIN_MAX).await? else { return Ok(None) };
        if let Ok(closed) = ClosedDomain::decode(&self.keys, domain, &bytes) {
            return Ok(Some(closed));
        }
        let is_sound = |bytes: &[u8]| ClosedDomain::decode(&self.keys, domain, bytes).is_ok();
        let bytes = store.get_sound(&name, CLOSED_DOMAIN_MAX, is_sound).await?;
        ClosedDomain::decode(&self.keys, domain, &bytes).map(Some).map_err(RepositoryError::damaged(name))
    }

    /// Closes a domain: only the versions that are listed now count from now on. Returns its end,
    /// also when it was closed before.
    ///
    /// # Errors
    /// [`RepositoryError::KeyLacks`] without the role operate; [`RepositoryError::Damaged`] when
    /// something else has the name of the object.
    pub async fn close_domain(&self, end: ClosedDomain) -> Result<ClosedDomain, RepositoryError> {
        self.require(Roles::OPERATE, "to close a domain")?;
        let domain = end.domain(&self.keys);
        if let Some(closed) = self.closed_domain(domain).await? {
            return Ok(closed);
        }
        // Twice, because one listing may lack a version, which would be refused for ever.
        let mut versions = BTreeSet::new();
        for _ in 0..2 {
            let catalog = self.through(self.store.without_cache()).catalog().await?;
            let of_domain = catalog.versions.iter().filter(|version| version.summary.domain == domain);
            versions.extend(of_domain.map(|version| VersionDigest::of(version.series, &version.summary)));
        }
        let end = ClosedDomain { versions: versions.into_iter().collect(), ..end };
        let bytes = end.encode(&self.keys, random(self.entropy())?)?;
        match self.store.create(&names::closed(domain), bytes.into()).await {
            Err(error) if error.kind != StoreErrorKind::AlreadyExists => return Err(error.into()),
            // Read back, because the answer alone proves nothing, or another operator was first.
            _ => {}
        }
        let missing = || larder_format::DecodeError::NotAuthentic { what: "end of a domain" };
        match self.closed_domain(domain).await? {
            Some(closed) => Ok(closed),
            None => Err(RepositoryError::Damaged { name: names::closed(domain), source: missing() }),
        }
    }

    /// The genuine keys beside this one whose holders back up in a domain.
    pub async fn other_keys_in(&self, name: &str, epoch: u32, id: KeyId) -> Result<Vec<KeyId>, RepositoryError> {
        let list = self.list_keys().await?;
        let others = list.keys.iter().filter(|key| key.id != id && key.is_genuine && key.is_in(name, epoch));
        Ok(others.map(|key| key.id).collect())
    }

    /// Refuses work for a domain that is closed. Every role can ask that of its own domain. The
    /// default domain is always open, and costs no request.
    ///
    /// # Errors
    /// [`RepositoryError::DomainClosed`].
    pub async fn expect_open_domain(&self) -> Result<(), RepositoryError> {
        let domain = self.keys.domain();
        if domain.is_default() {
            return Ok(());
        }
        match self.closed_domain(domain).await {
            Ok(None) => Ok(()),
            Ok(Some(end)) => Err(RepositoryError::DomainClosed { name: end.name }),
            // Anybody can create it. It closes nothing.
            Err(error) if error.is_of_object() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The epoch of a name that is open: 0, unless domains of that name were closed.
    pub async fn open_epoch(&self, name: &str) -> Result<u32, RepositoryError> {
        if name.is_empty() {
            return Ok(0);
        }
        Ok(self.closed_domains().await?.open_epoch(self, name))
    }
}
