//! What has to be thawed for a restore, and the hours and the price of each way to do it.

use std::collections::{BTreeMap, BTreeSet};

use larder_format::ids::ContainerId;
use larder_format::names;
use larder_store::prices::Prices;
use larder_store::{ClassedObject, Repository, StoreError, ThawTier, Warmth, thaw_hours};
use serde_json::{Value, json};

use crate::app::App;
use crate::failure::Failure;
use crate::output::Output;
use crate::sizes;

/// The containers that a restore needs, as they lie in the storage.
#[derive(Debug, Default)]
pub(in crate::commands::restore) struct Plan {
    /// Those that can be read.
    readable: Vec<ClassedObject>,
    /// Those that cannot, or only for some days.
    pub(super) cold: Vec<ClassedObject>,
    /// Those that are gone: passes have moved their chunks.
    moved: u64,
    /// Whether the storage has classes that must be thawed.
    has_classes: bool,
}

/// Objects of one class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sum {
    objects: u64,
    bytes: u64,
}

impl Sum {
    fn add(&mut self, object: &ClassedObject) {
        self.objects += 1;
        self.bytes += object.size;
    }
}

/// One way to thaw everything that has to be asked for.
#[derive(Debug, PartialEq)]
struct Way {
    tier: ThawTier,
    /// Classes that do not have it.
    without: Vec<String>,
    hours: Option<(f64, f64)>,
    /// Requests and bytes.
    thawing: Option<f64>,
    /// Readable copies.
    copies: Option<f64>,
}

impl Way {
    fn cost(&self) -> Option<f64> {
        Some(self.thawing? + self.copies?)
    }
}

impl Plan {
    pub(in crate::commands::restore) fn read(
        app: &App,
        repository: &Repository,
        needed: &BTreeSet<ContainerId>,
    ) -> Result<Self, Failure> {
        Ok(app.block_on(Self::of(repository, needed))?)
    }

    async fn of(repository: &Repository, needed: &BTreeSet<ContainerId>) -> Result<Self, StoreError> {
        let mut plan = Self::default();
        let is_needed = |object: &ClassedObject| {
            names::parse_container(&object.name).is_some_and(|container| needed.contains(&container))
        };
        let mut found = Vec::new();
        let each = |object| found.extend(Some(object).filter(is_needed));
        plan.has_classes = repository.store().list_classes(names::DATA, each).await?;
        if !plan.has_classes {
            return Ok(plan);
        }
        repository.store().look_into_tiers(&mut found).await?;
        (plan.readable, plan.cold) = found.into_iter().partition(|object| object.warmth == Warmth::Warm);
        plan.moved = (needed.len() - plan.readable.len() - plan.cold.len()) as u64;
        Ok(plan)
    }

    pub(super) fn of_warmth(&self, warmth: Warmth) -> impl Iterator<Item = &ClassedObject> {
        self.cold.iter().filter(move |object| object.warmth == warmth)
    }

    /// Shows it, as text or as JSON. `days`: how long thawed objects would stay readable.
    pub(in crate::commands::restore) fn show(
        &self,
        out: &Output,
        prices: Option<&Prices>,
        days: u32,
    ) -> Result<(), Failure> {
        if out.is_json() {
            return out.json(&self.json(prices, days));
        }
        if self.cold.is_empty() {
            out.line("nothing has to be thawed")?;
        }
        for (warmth, what) in [
            (Warmth::Cold, "has to be thawed"),
            (Warmth::Thawing, "is being thawed"),
            (Warmth::Thawed, "is thawed for some days"),
        ] {
            for (class, Sum { objects, bytes }) in by_class(self.of_warmth(warmth)) {
                let objects = sizes::count(objects, "object");
                out.line(format!("{objects} ({}) of class {class} {what}", sizes::show(bytes)))?;
            }
        }
        if out.verbose() > 0 {
            self.cold.iter().try_for_each(|object| out.line(format!("  {}  {}", object.class, object.name)))?;
        }
        if !self.has_classes {
            return out.info("this storage has no classes that must be thawed");
        }
        for way in self.ways(prices, days) {
            out.line(shown(&way, prices, days))?;
        }
        let readable = sum(&self.readable);
        let objects = sizes::count(readable.objects, "object");
        out.info(format!("{objects} ({}) can be read at once", sizes::show(readable.bytes)))?;
        match prices {
            Some(prices) => {
                let Prices { currency, basis, .. } = prices;
                let most = self.traffic(prices) + self.reading(prices);
                out.line(format!("reading everything that is needed: at most {most:.4} {currency}"))?;
                out.remark(&format!("note: prices are assumptions ({basis}); --prices sets those of your storage"));
            }
            None => out.remark("note: the prices of this storage are not known; --prices sets them"),
        }
        if self.moved > 0 {
            let moved = sizes::count(self.moved, "object");
            out.remark(&format!("note: {moved} were rewritten; a restore finds out where their data is now"));
        }
        Ok(())
    }

    fn json(&self, prices: Option<&Prices>, days: u32) -> Value {
        let objects: Vec<_> = self
            .cold
            .iter()
            .map(|object| {
                json!({ "name": object.name, "bytes": object.size, "class": object.class, "state": state(object.warmth) })
            })
            .collect();
        let to_thaw = sum(self.of_warmth(Warmth::Cold));
        let readable = sum(&self.readable);
        let tiers: Vec<_> = self.ways(prices, days).iter().map(way_json).collect();
        json!({
            "message_type": "thaw_plan",
            "objects_to_thaw": to_thaw.objects,
            "bytes_to_thaw": to_thaw.bytes,
            "objects": objects,
            "readable_objects": readable.objects,
            "readable_bytes": readable.bytes,
            "tiers": tiers,
            "thaw_days": days,
            "traffic_cost": prices.map(|prices| self.traffic(prices)),
            "reading_cost": prices.map(|prices| self.reading(prices)),
            "prices": prices.map(|prices| json!({ "currency": prices.currency, "basis": prices.basis })),
            "exact": self.moved == 0,
        })
    }

    /// The ways to thaw everything; none if nothing has to be asked for.
    fn ways(&self, prices: Option<&Prices>, days: u32) -> Vec<Way> {
        let classes = by_class(self.of_warmth(Warmth::Cold));
        if classes.is_empty() {
            return Vec::new();
        }
        ThawTier::ALL.into_iter().map(|tier| way(&classes, tier, prices, days)).collect()
    }

    /// The price of the traffic, if all objects are read as a whole.
    fn traffic(&self, prices: &Prices) -> f64 {
        let all = sum(self.readable.iter().chain(&self.cold));
        all.bytes as f64 / 1e9 * prices.traffic
    }

    /// The price of reading in classes that charge for it, if all objects are read as a whole.
    fn reading(&self, prices: &Prices) -> f64 {
        let classes = by_class(&self.readable);
        classes.iter().map(|(class, sum)| sum.bytes as f64 / 1e9 * prices.retrieval.of_reading(class)).sum()
    }
}

fn way(classes: &BTreeMap<&str, Sum>, tier: ThawTier, prices: Option<&Prices>, days: u32) -> Way {
    let without = classes.keys().filter(|class| thaw_hours(class, tier).is_none());
    let without: Vec<String> = without.map(|class| (*class).to_owned()).collect();
    if !without.is_empty() {
        return Way { tier, without, hours: None, thawing: None, copies: None };
    }
    let all = classes.keys().filter_map(|class| thaw_hours(class, tier));
    let hours = all.reduce(|(least, most), (from, to)| (least.min(from), most.max(to)));
    // One price that is not known makes the whole unknown.
    let thawing = prices.and_then(|prices| {
        let of = |(class, sum): (&&str, &Sum)| Some(prices.retrieval.of(class, tier)?.of(sum.objects, sum.bytes));
        classes.iter().map(of).sum::<Option<f64>>()
    });
    // Objects of archive tiers are moved, and have no copies.
    let copied = classes.iter().filter(|(class, _)| !class.ends_with("_ACCESS")).map(|(_, sum)| sum.bytes).sum();
    Way { tier, without, hours, thawing, copies: prices.map(|prices| prices.thawed_for(copied, days)) }
}

fn shown(way: &Way, prices: Option<&Prices>, days: u32) -> String {
    let tier = way.tier.name();
    let Some((least, most)) = way.hours else {
        return format!("{tier}: not for class {}", way.without.join(" and "));
    };
    let time = match most < 1.0 {
        true => format!("{:.0} to {:.0} minutes", least * 60.0, most * 60.0),
        false => format!("{least:.0} to {most:.0} hours"),
    };
    let cost = match (way.cost(), prices) {
        (Some(cost), Some(prices)) => format!("{cost:.4} {} with copies for {days} days", prices.currency),
        _ => "price not known".to_owned(),
    };
    format!("{tier}: {time}, {cost}")
}

fn way_json(way: &Way) -> Value {
    json!({
        "tier": way.tier.name(),
        "available": way.without.is_empty(),
        "classes_without": way.without,
        "hours": way.hours.map(|(least, most)| [least, most]),
        "requests_and_bytes_cost": way.thawing,
        "copies_cost": way.copies,
        "cost": way.cost(),
    })
}

fn by_class<'a>(objects: impl IntoIterator<Item = &'a ClassedObject>) -> BTreeMap<&'a str, Sum> {
    let mut classes: BTreeMap<&str, Sum> = BTreeMap::new();
    objects.into_iter().for_each(|object| classes.entry(&object.class).or_default().add(object));
    classes
}

fn sum<'a>(objects: impl IntoIterator<Item = &'a ClassedObject>) -> Sum {
    let mut sum = Sum::default();
    objects.into_iter().for_each(|object| sum.add(object));
    sum
}

fn state(warmth: Warmth) -> &'static str {
    match warmth {
        Warmth::Warm => "warm",
        Warmth::Thawed => "thawed",
        Warmth::Thawing => "thawing",
        Warmth::Cold => "cold",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(class: &str, size: u64, warmth: Warmth) -> ClassedObject {
        ClassedObject { name: "data/x".to_owned(), size, class: class.to_owned(), warmth, modified_ms: 0 }
    }

    #[test]
    fn a_tier_needs_all_classes_and_its_price_all_prices() {
        let gigabyte = 1_000_000_000;
        let plan = Plan {
            cold: vec![
                object("GLACIER", gigabyte, Warmth::Cold),
                object("DEEP_ARCHIVE", 2 * gigabyte, Warmth::Cold),
                object("GLACIER", 7 * gigabyte, Warmth::Thawing),
            ],
            readable: vec![object("GLACIER_IR", gigabyte, Warmth::Warm)],
            has_classes: true,
            moved: 0,
        };
        let text = "storage=3,traffic=1,bulk=1,bulk-requests=1000,GLACIER.standard=1,GLACIER_IR.read=5";
        let prices: Prices = text.parse().expect("a list");
        let [bulk, standard, expedited] = &plan.ways(Some(&prices), 10)[..] else { panic!("three ways") };
        assert_eq!((bulk.hours, bulk.thawing, bulk.copies), (Some((5.0, 48.0)), Some(5.0), Some(3.0)));
        assert_eq!((standard.hours, standard.cost()), (Some((3.0, 12.0)), None), "a price is not known");
        assert_eq!((&expedited.without[..], expedited.hours), (&["DEEP_ARCHIVE".to_owned()][..], None));
        assert!((plan.traffic(&prices) - 11.0).abs() < 1e-9 && (plan.reading(&prices) - 5.0).abs() < 1e-9);
        assert_eq!(shown(bulk, Some(&prices), 10), "bulk: 5 to 48 hours, 8.0000 USD with copies for 10 days");
        assert_eq!(shown(expedited, Some(&prices), 10), "expedited: not for class DEEP_ARCHIVE");
        let tiered = Plan { cold: vec![object("ARCHIVE_ACCESS", gigabyte, Warmth::Cold)], ..Plan::default() };
        let way = &tiered.ways(Some(&prices), 10)[2];
        assert_eq!(shown(way, None, 10), "expedited: 1 to 5 minutes, price not known");
        assert_eq!(way.copies, Some(0.0), "it is moved");
    }
}
