//! Restic's documented behaviour as tables, and properties that hold of every policy.

use std::collections::{BTreeMap, BTreeSet};

use jiff::civil;
use jiff::tz::TimeZone;
use larder_format::ids::{ByteCount, JobId, SeriesKey};
use proptest::prelude::*;

use super::*;

/// A date in UTC.
fn ms(text: &str) -> u64 {
    let time: civil::DateTime = text.parse().expect("a date");
    time.to_zoned(TimeZone::UTC).expect("in range").timestamp().as_millisecond() as u64
}

const FUTURE: &str = "2030-01-01T00:00";

struct Table {
    times: Vec<&'static str>,
    tags: BTreeMap<&'static str, Vec<String>>,
    zone: TimeZone,
    now: &'static str,
    bytes: Vec<u64>,
    unconfirmed: BTreeSet<&'static str>,
    incomplete: BTreeSet<&'static str>,
    /// Those that are of another series.
    others: BTreeSet<&'static str>,
}

impl Table {
    fn of(times: &[&'static str]) -> Self {
        let (tags, bytes, unconfirmed) = (BTreeMap::new(), Vec::new(), BTreeSet::new());
        let (incomplete, others) = (BTreeSet::new(), BTreeSet::new());
        Self { times: times.to_vec(), tags, zone: TimeZone::UTC, now: FUTURE, bytes, unconfirmed, incomplete, others }
    }

    fn judged(&self, policy: &Policy) -> Vec<Vec<Reason>> {
        let candidates: Vec<_> = self
            .times
            .iter()
            .enumerate()
            .map(|(number, time)| Candidate {
                id: JobId([number as u8; 16]),
                time_ms: ms(time),
                tags: self.tags.get(time).map_or(&[], Vec::as_slice),
                is_confirmed: !self.unconfirmed.contains(time),
                is_pinned: false,
                series: SeriesKey([self.others.contains(time).into(); 16]),
                is_complete: !self.incomplete.contains(time),
                bytes: ByteCount(self.bytes.get(number).copied().unwrap_or(0)),
            })
            .collect();
        judge(policy, &self.zone, ms(self.now), &candidates)
    }

    #[track_caller]
    fn keeps(&self, policy: &Policy, kept: &[&str]) {
        let judged = self.judged(policy);
        let is_kept = |place: &usize| !judged[*place].is_empty();
        let found: Vec<_> = (0..self.times.len()).filter(is_kept).map(|place| self.times[place]).collect();
        assert_eq!(found, kept, "{policy:?}");
    }
}

/// A complete version without tags.
fn candidate(id: JobId, time_ms: u64, is_confirmed: bool, bytes: ByteCount) -> Candidate<'static> {
    let series = SeriesKey([0; 16]);
    Candidate { id, time_ms, tags: &[], is_confirmed, is_pinned: false, series, is_complete: true, bytes }
}

/// The example of restic's manual: Sundays of a little more than two months.
fn sundays() -> Table {
    Table::of(&[
        "2019-09-01T11:00",
        "2019-09-08T11:00",
        "2019-09-15T11:00",
        "2019-09-22T11:00",
        "2019-09-29T11:00",
        "2019-10-06T11:00",
        "2019-10-13T11:00",
        "2019-10-20T11:00",
        "2019-10-27T11:00",
        "2019-11-03T11:00",
        "2019-11-10T11:00",
    ])
}

#[test]
fn days_without_a_version_are_not_counted() {
    // "--keep-daily 4": the last four snapshots, and not only the last Sunday.
    let kept = ["2019-10-20T11:00", "2019-10-27T11:00", "2019-11-03T11:00", "2019-11-10T11:00"];
    sundays().keeps(&Policy { daily: Keep::AtMost(4), ..Policy::default() }, &kept);
    sundays().keeps(&Policy { last: Keep::AtMost(4), ..Policy::default() }, &kept);
    sundays().keeps(&Policy { weekly: Keep::AtMost(4), ..Policy::default() }, &kept);
    sundays().keeps(&Policy { hourly: Keep::AtMost(4), ..Policy::default() }, &kept);
}

#[test]
fn the_oldest_is_kept_while_a_rule_has_periods_left() {
    let policy = Policy { daily: Keep::AtMost(7), monthly: Keep::AtMost(12), ..Policy::default() };
    let table = Table::of(&["2024-01-03T10:00", "2024-01-20T10:00", "2024-02-10T10:00", "2024-02-10T12:00"]);
    table.keeps(&policy, &["2024-01-03T10:00", "2024-01-20T10:00", "2024-02-10T12:00"]);
    let judged = table.judged(&policy);
    assert_eq!(judged[0], [Reason::Newest(Calendar::Daily), Reason::Oldest(Calendar::Monthly)]);
    assert_eq!(judged[3], [Reason::Newest(Calendar::Daily), Reason::Newest(Calendar::Monthly)]);
    let text: Vec<_> = judged[0].iter().map(ToString::to_string).collect();
    assert_eq!(text, ["daily snapshot", "oldest monthly snapshot"]);
    // With its periods used up it does not.
    table.keeps(&Policy { monthly: Keep::AtMost(2), ..Policy::default() }, &["2024-01-20T10:00", "2024-02-10T12:00"]);
    table.keeps(&Policy { yearly: Keep::AtMost(1), ..Policy::default() }, &["2024-02-10T12:00"]);
    let both = ["2024-01-03T10:00", "2024-02-10T12:00"];
    table.keeps(&Policy { yearly: Keep::AtMost(2), ..Policy::default() }, &both);
    table.keeps(&Policy { yearly: Keep::All, ..Policy::default() }, &both);
}

#[test]
fn of_each_period_the_newest_is_kept() {
    let table = Table::of(&[
        "2023-12-31T23:59",
        "2024-01-01T00:00",
        "2024-01-01T10:05",
        "2024-01-01T10:55",
        "2024-01-07T12:00",
        "2024-01-08T12:00",
    ]);
    let first = Policy::default();
    table.keeps(
        &Policy { hourly: Keep::AtMost(4), ..first.clone() },
        &["2024-01-01T00:00", "2024-01-01T10:55", "2024-01-07T12:00", "2024-01-08T12:00"],
    );
    table.keeps(
        &Policy { daily: Keep::AtMost(3), ..first.clone() },
        &["2024-01-01T10:55", "2024-01-07T12:00", "2024-01-08T12:00"],
    );
    // Monday to Sunday: the 1st of January 2024 was a Monday.
    table.keeps(&Policy { weekly: Keep::AtMost(2), ..first.clone() }, &["2024-01-07T12:00", "2024-01-08T12:00"]);
    table.keeps(&Policy { monthly: Keep::AtMost(1), ..first.clone() }, &["2024-01-08T12:00"]);
    table.keeps(&Policy { yearly: Keep::AtMost(2), ..first }, &["2023-12-31T23:59", "2024-01-08T12:00"]);
}

#[test]
fn the_last_days_of_a_year_may_be_in_the_first_week_of_the_next() {
    let table = Table::of(&["2024-12-29T12:00", "2024-12-30T12:00", "2025-01-05T12:00"]);
    table.keeps(&Policy { weekly: Keep::AtMost(2), ..Policy::default() }, &["2024-12-29T12:00", "2025-01-05T12:00"]);
}

#[test]
fn periods_are_those_of_the_time_zone() {
    let mut table = Table::of(&["2024-06-01T21:30", "2024-06-01T22:30", "2024-06-02T10:00"]);
    let daily = Policy { daily: Keep::AtMost(2), ..Policy::default() };
    table.keeps(&daily, &["2024-06-01T22:30", "2024-06-02T10:00"]);
    // Two hours further east, half past ten is half past midnight of the next day.
    table.zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").expect("valid");
    table.keeps(&daily, &["2024-06-01T21:30", "2024-06-02T10:00"]);
    // The hour that comes twice in October counts once, as it does for restic.
    let mut table = Table::of(&["2024-10-27T00:15", "2024-10-27T01:15", "2024-10-27T02:15"]);
    let hourly = Policy { hourly: Keep::AtMost(2), ..Policy::default() };
    table.keeps(&hourly, &["2024-10-27T01:15", "2024-10-27T02:15"]);
    table.zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").expect("valid");
    let three = Policy { hourly: Keep::AtMost(1), ..Policy::default() };
    table.keeps(&three, &["2024-10-27T02:15"]);
    table.times.insert(0, "2024-10-26T00:00");
    let three = Policy { hourly: Keep::AtMost(3), ..Policy::default() };
    table.keeps(&three, &["2024-10-26T00:00", "2024-10-27T01:15", "2024-10-27T02:15"]);
}

#[test]
fn within_counts_back_from_the_newest_version() {
    let within = |text: &str| Policy { within: Some(text.parse().expect("valid")), ..Policy::default() };
    sundays().keeps(&within("7d"), &["2019-11-10T11:00"]);
    sundays().keeps(&within("7d1h"), &["2019-11-03T11:00", "2019-11-10T11:00"]);
    sundays().keeps(&within("1m"), &sundays().times[6..]);
    sundays().keeps(&within("1y"), &sundays().times);
}

#[test]
fn within_keeps_one_of_each_period() {
    let policy = Policy {
        within_daily: Some("2d".parse().expect("valid")),
        within_monthly: Some("2m".parse().expect("valid")),
        ..Policy::default()
    };
    let table = Table::of(&[
        "2024-01-01T10:00",
        "2024-02-01T10:00",
        "2024-02-20T10:00",
        "2024-03-08T10:00",
        "2024-03-09T09:00",
        "2024-03-09T10:00",
        "2024-03-10T09:00",
    ]);
    table.keeps(&policy, &["2024-02-20T10:00", "2024-03-08T10:00", "2024-03-09T10:00", "2024-03-10T09:00"]);
}

#[test]
fn versions_in_the_future_move_nothing_and_stay() {
    let mut table = Table::of(&["2024-01-01T10:00", "2024-01-05T10:00", "2029-01-01T00:00"]);
    table.now = "2024-01-06T00:00";
    let policy = Policy { within: Some("2d".parse().expect("valid")), ..Policy::default() };
    table.keeps(&policy, &["2024-01-05T10:00", "2029-01-01T00:00"]);
    // Only versions in the future: nothing is known to be old.
    table.now = "2023-01-01T00:00";
    table.keeps(&policy, &table.times);
}

#[test]
fn tags_ids_and_pins_keep_without_being_counted() {
    let mut table = sundays();
    let tags = |tags: &[&str]| tags.iter().map(|tag| (*tag).to_owned()).collect::<Vec<_>>();
    table.tags.insert("2019-09-01T11:00", tags(&["foo"]));
    table.tags.insert("2019-09-08T11:00", tags(&["foo", "bar"]));
    table.tags.insert("2019-11-10T11:00", tags(&["bar"]));
    let policy = Policy { tags: vec![tags(&["foo", "bar"])], last: Keep::AtMost(1), ..Policy::default() };
    table.keeps(&policy, &["2019-09-08T11:00", "2019-11-10T11:00"]);
    let either = Policy { tags: vec![tags(&["foo"]), tags(&["bar"])], ..Policy::default() };
    table.keeps(&either, &["2019-09-01T11:00", "2019-09-08T11:00", "2019-11-10T11:00"]);
    let by_id = Policy { ids: vec![JobId([2; 16])], ..Policy::default() };
    table.keeps(&by_id, &["2019-09-15T11:00"]);
    let (id, bytes) = (JobId([1; 16]), ByteCount(0));
    let pinned = candidate(id, 5, true, bytes);
    let pinned = Candidate { is_pinned: true, ..pinned };
    let newer = Candidate { id: JobId([2; 16]), time_ms: 6, is_pinned: false, ..pinned };
    let last = Policy { last: Keep::AtMost(1), ..Policy::default() };
    let judged = judge(&last, &TimeZone::UTC, 9, &[pinned, newer]);
    assert_eq!(judged, [vec![Reason::Pinned], vec![Reason::Newest(Calendar::Last)]]);
}

#[test]
fn a_size_keeps_the_newest_versions_that_fit() {
    let mut table = Table::of(&["2024-01-01T10:00", "2024-01-02T10:00", "2024-01-03T10:00", "2024-01-04T10:00"]);
    table.bytes = vec![10, 50, 20, 30];
    let size = |bytes| Policy { size: Some(ByteCount(bytes)), ..Policy::default() };
    table.keeps(&size(29), &[]);
    table.keeps(&size(30), &["2024-01-04T10:00"]);
    table.keeps(&size(50), &["2024-01-03T10:00", "2024-01-04T10:00"]);
    // The oldest would fit, but one between them does not.
    table.keeps(&size(60), &["2024-01-03T10:00", "2024-01-04T10:00"]);
    table.keeps(&size(110), &table.times);
}

#[test]
fn policies_are_read_as_they_are_written() {
    assert_eq!("7".parse(), Ok(Keep::AtMost(7)));
    assert_eq!("unlimited".parse(), Ok(Keep::All));
    assert_eq!("-1".parse(), Ok(Keep::All));
    assert_eq!("0".parse(), Ok(Keep::None));
    for bad in ["", "-2", "x", "7d", "99999999999"] {
        assert!(bad.parse::<Keep>().is_err(), "{bad}");
    }
    assert_eq!("2y5m7d3h".parse(), Ok(Period { years: 2, months: 5, days: 7, hours: 3 }));
    assert_eq!("30d".parse::<Period>().map(|period| period.to_string()), Ok("30d".to_owned()));
    for bad in ["", "0d", "7", "d", "7w", "7d3", "-7d", "99999d", "1y€"] {
        assert!(bad.parse::<Period>().is_err(), "{bad}");
    }
    assert!(Policy::default().is_empty());
}

#[test]
fn the_last_complete_version_stays_beside_newer_ones_that_are_not() {
    let times = ["2024-03-01T03:00", "2024-03-02T03:00", "2024-03-03T03:00", "2024-03-04T03:00", "2024-03-05T03:00"];
    let last = |count| Policy { last: Keep::AtMost(count), ..Policy::default() };
    let within = Policy { within: "1d".parse().ok(), ..Policy::default() };
    let mut table = Table::of(&times);
    table.incomplete = [times[3], times[4]].into();
    table.keeps(&last(1), &[times[2], times[4]]);
    table.keeps(&last(2), &times[2..]);
    table.keeps(&within, &[times[2], times[4]]);
    let judged = table.judged(&last(2));
    assert_eq!(judged[2], [Reason::LastComplete]);
    assert_eq!(Reason::LastComplete.to_string(), "last complete snapshot");
    // It is kept in addition, and counts for no rule.
    table.keeps(&last(3), &times[2..]);
    // A complete one that is newer stands for it.
    table.incomplete = [times[3]].into();
    table.keeps(&last(2), &times[3..]);
    // Where none is complete, or no incomplete one is kept, the rules alone decide.
    table.incomplete = times.into();
    table.keeps(&last(2), &times[3..]);
    table.incomplete = [times[4]].into();
    table.tags = [(times[0], vec!["t".to_owned()])].into();
    table.keeps(&Policy { tags: vec![vec!["t".to_owned()]], ..Policy::default() }, &times[..1]);
    // The complete ones of another series are no substitute.
    table.incomplete = [times[2], times[4]].into();
    table.others = [times[1], times[3]].into();
    table.keeps(&last(1), &[times[0], times[4]]);
}

#[test]
fn an_unconfirmed_time_keeps_its_version_and_displaces_nothing() {
    let honest = ["2026-11-18T03:00", "2026-11-19T03:00", "2026-11-20T03:00", "2026-11-21T03:00"];
    let forged = [
        "1970-01-01T00:00",
        "2026-11-18T23:59",
        "2026-11-19T23:59",
        "2026-11-20T23:59",
        "2026-11-21T23:59",
        "2026-11-22T23:59",
        "2029-01-01T00:00",
        "9999-12-30T00:00",
    ];
    let mut table = Table::of(&[&honest[..], &forged].concat());
    table.unconfirmed = forged.into_iter().collect();
    table.now = "2026-11-22T12:00";
    table.bytes = [vec![10; 4], vec![500; 8]].concat();
    let empty = Policy::default;
    let four = Keep::AtMost(4);
    let within = |text: &str| Some(text.parse::<Period>().expect("valid"));
    for policy in [
        Policy { last: four, ..empty() },
        Policy { hourly: four, ..empty() },
        Policy { daily: four, ..empty() },
        Policy { within: within("4d"), ..empty() },
        Policy { within_hourly: within("4d"), ..empty() },
        Policy { within_daily: within("4d"), ..empty() },
        Policy { size: Some(ByteCount(40)), ..empty() },
    ] {
        table.keeps(&policy, &table.times);
        let judged = table.judged(&policy);
        assert!(judged[4..].iter().all(|reasons| *reasons == [Reason::Unconfirmed]), "{policy:?}");
        assert!(judged[..4].iter().all(|reasons| !reasons.contains(&Reason::Unconfirmed)), "{policy:?}");
    }
    // The others go as they would without them.
    table.keeps(&Policy { daily: Keep::AtMost(1), ..empty() }, &[&honest[3..], &forged].concat());
    table.keeps(&Policy { monthly: Keep::AtMost(2), ..empty() }, &[&honest[..1], &honest[3..], &forged].concat());
    // To be named, or to forget a whole group, takes no time of anybody's word.
    table.keeps(&empty(), &[]);
    table.tags.insert(forged[0], vec!["foo".to_owned()]);
    let tagged = Policy { tags: vec![vec!["foo".to_owned()]], ..empty() };
    let text: Vec<_> = table.judged(&tagged)[4].iter().map(ToString::to_string).collect();
    assert_eq!(text, ["has tags [foo]", "claims a time that the storage does not confirm"]);
}

/// The result of one counting rule, computed differently. It is the newest of each period, up to
/// the count. If these are fewer, it includes the oldest of all.
fn kept_by_count(times: &BTreeSet<u64>, count: usize, period: impl Fn(u64) -> String) -> BTreeSet<u64> {
    let mut newest: BTreeMap<String, u64> = BTreeMap::new();
    for time in times {
        newest.insert(period(*time), *time);
    }
    let newest: BTreeSet<u64> = newest.into_values().collect();
    let mut kept: BTreeSet<u64> = newest.iter().rev().take(count).copied().collect();
    if kept.len() < count {
        kept.extend(times.first());
    }
    kept
}

fn keep() -> impl Strategy<Value = Keep> {
    prop_oneof![Just(Keep::None), (1u32..6).prop_map(Keep::AtMost), Just(Keep::All)]
}

fn period() -> impl Strategy<Value = Option<Period>> {
    proptest::option::of((0u16..2, 0u16..3, 0u16..9, 1u16..30).prop_map(|(years, months, days, hours)| Period {
        years,
        months,
        days,
        hours,
    }))
}

fn policy() -> impl Strategy<Value = Policy> {
    let counts = (keep(), keep(), keep(), keep(), keep(), keep());
    (counts, (period(), period(), period()), proptest::option::of(0u64..500)).prop_map(|(counts, periods, size)| {
        Policy {
            last: counts.0,
            hourly: counts.1,
            daily: counts.2,
            weekly: counts.3,
            monthly: counts.4,
            yearly: counts.5,
            within: periods.0,
            within_daily: periods.1,
            within_monthly: periods.2,
            size: size.map(ByteCount),
            ..Policy::default()
        }
    })
}

/// Times of two years, some of them close together.
fn times() -> impl Strategy<Value = BTreeSet<u64>> {
    proptest::collection::btree_set((0u64..700, 0u64..24, 0u64..4), 1..60).prop_map(|times| {
        let at = |(day, hour, quarter)| 1_700_000_000_000 + ((day * 24 + hour) * 4 + quarter) * 900_000;
        times.into_iter().map(at).collect()
    })
}

fn kept(policy: &Policy, times: &[u64]) -> BTreeSet<u64> {
    let candidates: Vec<_> = times
        .iter()
        .map(|time_ms| candidate(JobId::new(*time_ms, [0; 10]), *time_ms, true, ByteCount(time_ms / 900_000 % 50)))
        .collect();
    let judged = judge(policy, &TimeZone::UTC, u64::MAX, &candidates);
    times.iter().zip(judged).filter(|(_, reasons)| !reasons.is_empty()).map(|(time, _)| *time).collect()
}

proptest! {
    #[test]
    fn counting_rules_agree_with_their_definition(times in times(), count in 1usize..9) {
        let format = |format: &'static str| move |ms: u64| {
            let time = jiff::Timestamp::from_millisecond(ms as i64).expect("in range").to_zoned(TimeZone::UTC);
            time.strftime(format).to_string()
        };
        let all: Vec<u64> = times.iter().copied().collect();
        let keep = Keep::AtMost(count as u32);
        let empty = Policy::default;
        let rules = [
            (Policy { hourly: keep, ..empty() }, "%Y-%m-%d %H"),
            (Policy { daily: keep, ..empty() }, "%Y-%m-%d"),
            (Policy { weekly: keep, ..empty() }, "%G-%V"),
            (Policy { monthly: keep, ..empty() }, "%Y-%m"),
            (Policy { yearly: keep, ..empty() }, "%Y"),
        ];
        for (policy, text) in rules {
            prop_assert_eq!(kept(&policy, &all), kept_by_count(&times, count, format(text)), "{:?}", policy);
        }
        let last = Policy { last: keep, ..empty() };
        prop_assert_eq!(kept(&last, &all), times.iter().rev().take(count).copied().collect::<BTreeSet<_>>());
    }

    /// Forgetting twice by one policy forgets no more than once, for any result of the first time.
    #[test]
    fn a_policy_keeps_what_it_kept(times in times(), policy in policy()) {
        // The size of a version depends on the others; without a size rule the property holds.
        let policy = Policy { size: None, ..policy };
        let first = kept(&policy, &times.iter().copied().collect::<Vec<_>>());
        let second = kept(&policy, &first.iter().copied().collect::<Vec<_>>());
        prop_assert_eq!(first, second);
    }

    #[test]
    fn the_order_in_which_versions_are_given_does_not_matter(times in times(), policy in policy(), seed: u64) {
        let sorted: Vec<u64> = times.iter().copied().collect();
        let mut mixed = sorted.clone();
        mixed.sort_by_key(|time| time.wrapping_mul(seed | 1));
        prop_assert_eq!(kept(&policy, &sorted), kept(&policy, &mixed));
    }

    /// Versions that anybody with a backup key may add, at any time, take nothing from the others.
    #[test]
    fn unconfirmed_versions_displace_nothing(
        honest in times(),
        forged in proptest::collection::vec((any::<u64>(), 0u64..100), 1..20),
        policy in policy(),
        now_ms: u64,
    ) {
        let candidate = |time_ms: u64, is_confirmed: bool, bytes: u64| {
            let id = JobId::new(time_ms, [is_confirmed.into(); 10]);
            candidate(id, time_ms, is_confirmed, ByteCount(bytes))
        };
        let honest: Vec<_> = honest.into_iter().map(|time_ms| candidate(time_ms, true, time_ms / 900_000 % 50)).collect();
        // Some close to the honest ones, some far off.
        let near = |at: u64| honest[(at % honest.len() as u64) as usize].time_ms ^ (at >> 40);
        let forged = forged.into_iter().map(|(at, bytes)| {
            candidate(if bytes % 3 == 0 { at } else { near(at) }, false, bytes)
        });
        let all: Vec<_> = honest.iter().copied().chain(forged).collect();
        let alone = judge(&policy, &TimeZone::UTC, now_ms, &honest);
        let beside = judge(&policy, &TimeZone::UTC, now_ms, &all);
        prop_assert_eq!(&beside[..honest.len()], &alone[..]);
        let is_kept = |reasons: &Vec<Reason>| *reasons == [Reason::Unconfirmed];
        prop_assert!(policy.is_empty() || beside[honest.len()..].iter().all(is_kept));
    }

    #[test]
    fn every_rule_only_adds(times in times(), a in policy(), b in policy()) {
        let times: Vec<u64> = times.iter().copied().collect();
        let both = Policy { within: b.within, daily: b.daily, size: b.size, ..a.clone() };
        let apart = Policy { within: None, daily: Keep::None, size: None, ..a };
        let added = Policy { within: b.within, daily: b.daily, size: b.size, ..Policy::default() };
        let union: BTreeSet<u64> = kept(&apart, &times).union(&kept(&added, &times)).copied().collect();
        prop_assert_eq!(kept(&both, &times), union);
    }
}
