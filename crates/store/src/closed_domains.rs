//! Closed domains: how an operator ends what a stolen backup key can still do.
//!
//! Removing a key object keeps nobody out who has copied its payload: that holder may still create
//! versions of its domain. So the operator closes the domain (`larder_format::closed_domain`), and
//! names the versions that count. Listings refuse every other version of the domain
//! ([`Catalog::refused`](crate::catalog::Catalog)), and maintenance forgets these, so that passes
//! collect them as any forgotten version.
//!
//! The default domain is not closed, because it belongs to all. A name can be used again: its next
//! epoch is another domain.
//!
//! An object that does not open closes nothing, because anybody may create it. `check` reports it.

use std::collections::HashMap;

use futures::StreamExt;
use larder_format::closed_domain::{CLOSED_DOMAIN_MAX, ClosedDomain};
use larder_format::ids::{DomainId, JobId};
use larder_format::names;
use larder_format::roles::Roles;

use crate::StoreErrorKind;
use crate::forget_marks::{OwnedVersion, read_if_there};
use crate::repository::{CONCURRENT_READS, Repository, RepositoryError, random};

/// The closed domains of a repository.
#[derive(Debug, Default)]
pub struct ClosedDomains {
    domains: HashMap<DomainId, ClosedDomain>,
    /// Objects that do not open, with their errors, by name. They close nothing.
    pub faulty: Vec<(String, RepositoryError)>,
}

impl ClosedDomains {
    /// Whether no domain is closed.
    pub fn is_empty(&self) -> bool {
        self.domains.is_empty()
    }

    /// The end of a domain, if it is closed.
    pub fn get(&self, domain: DomainId) -> Option<&ClosedDomain> {
        self.domains.get(&domain)
    }

    /// Whether a version does not count, because its domain is closed and does not name it.
    pub fn refuses(&self, OwnedVersion { domain, version }: OwnedVersion) -> bool {
        self.get(domain).is_some_and(|closed| !closed.admits(version.job))
    }

    /// The first epoch of a name that is not closed.
    fn open_epoch(&self, repository: &Repository, name: &str) -> u32 {
        let is_closed = |epoch: &u32| self.domains.contains_key(&repository.keys.domain_id(name, *epoch));
        (0..).find(|epoch| !is_closed(epoch)).unwrap_or(u32::MAX)
    }
}

impl Repository {
    /// Reads the ends of all closed domains. Asks the store, never a cache.
    pub async fn closed_domains(&self) -> Result<ClosedDomains, RepositoryError> {
        let store = self.store.without_cache();
        let listed = store.list(names::CLOSED).await?;
        let domains: Vec<_> = listed.iter().filter_map(|object| names::parse_closed(&object.name)).collect();
        let reads = domains.into_iter().map(|domain| async move { (domain, self.closed_domain(domain).await) });
        let mut reads = futures::stream::iter(reads).buffer_unordered(CONCURRENT_READS);
        let mut closed = ClosedDomains::default();
        while let Some((domain, read)) = reads.next().await {
            match read {
                Ok(found) => closed.domains.extend(found.map(|found| (domain, found))),
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
        let catalog = self.catalog().await?;
        if let Some(damaged) = catalog.damaged.into_iter().next() {
            // It might be of this domain, and would be refused.
            return Err(damaged.error);
        }
        let of_domain = catalog.versions.iter().filter(|version| version.summary.domain == domain);
        let mut versions: Vec<JobId> = of_domain.map(|version| version.id()).collect();
        versions.sort_unstable();
        versions.dedup();
        let end = ClosedDomain { versions, ..end };
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

    /// The epoch of a name that is open: 0, unless domains of that name were closed.
    pub async fn open_epoch(&self, name: &str) -> Result<u32, RepositoryError> {
        if name.is_empty() {
            return Ok(0);
        }
        Ok(self.closed_domains().await?.open_epoch(self, name))
    }
}
