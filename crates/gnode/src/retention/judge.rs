//! The decision about the versions of one group.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, Zoned};
use larder_format::ids::{ByteCount, JobId, SeriesKey};

use super::policy::{Keep, Period, Policy};

/// A version to decide about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate<'a> {
    /// Its id.
    pub id: JobId,
    /// Its time, milliseconds since the epoch.
    pub time_ms: u64,
    /// Its tags.
    pub tags: &'a [String],
    /// Whether its time is that of an operator, or near the time when the store got it. Otherwise
    /// its maker may have chosen the time to displace others.
    pub is_confirmed: bool,
    /// Whether it must be kept under any policy.
    pub is_pinned: bool,
    /// Its series.
    pub series: SeriesKey,
    /// Whether its backup read everything. Otherwise, it cannot replace an older one that did.
    pub is_complete: bool,
    /// Bytes of the containers that it uses and no newer confirmed version of the group does. Only
    /// used for [`Policy::size`].
    pub bytes: ByteCount,
}

/// A part of the calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Calendar {
    /// Every version is a period of its own.
    Last,
    /// Hours.
    Hourly,
    /// Days.
    Daily,
    /// ISO weeks.
    Weekly,
    /// Months.
    Monthly,
    /// Years.
    Yearly,
}

impl fmt::Display for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Last => "last",
            Self::Hourly => "hourly",
            Self::Daily => "daily",
            Self::Weekly => "weekly",
            Self::Monthly => "monthly",
            Self::Yearly => "yearly",
        })
    }
}

/// Why a version is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// It is the newest of its period.
    Newest(Calendar),
    /// It is the oldest there is, and the rule has periods left.
    Oldest(Calendar),
    /// It is young enough.
    Within(Period),
    /// It is the newest of its period and young enough.
    NewestWithin(Calendar, Period),
    /// It is the oldest there is and young enough.
    OldestWithin(Calendar, Period),
    /// It has these tags.
    Tags(Vec<String>),
    /// It was named.
    Id,
    /// It and all newer ones fit into this size.
    Size(ByteCount),
    /// It is pinned.
    Pinned,
    /// It is the last complete one of its series, and a newer one that is kept is not complete. It
    /// is kept in addition.
    LastComplete,
    /// Nothing confirms its time. It is kept in addition, and counts for no rule.
    Unconfirmed,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Newest(calendar) => write!(f, "{calendar} snapshot"),
            Self::Oldest(calendar) => write!(f, "oldest {calendar} snapshot"),
            Self::Within(period) => write!(f, "within {period}"),
            Self::NewestWithin(calendar, period) => write!(f, "{calendar} within {period}"),
            Self::OldestWithin(calendar, period) => write!(f, "oldest {calendar} within {period}"),
            Self::Tags(tags) => write!(f, "has tags [{}]", tags.join(", ")),
            Self::Id => f.write_str("named"),
            Self::Size(_) => f.write_str("within size"),
            Self::Pinned => f.write_str("pinned"),
            Self::LastComplete => f.write_str("last complete snapshot"),
            Self::Unconfirmed => f.write_str("claims a time that the storage does not confirm"),
        }
    }
}

/// A rule that keeps the newest version of each period, and its progress towards older versions.
struct Rule {
    calendar: Calendar,
    limit: Limit,
    last: Option<i64>,
}

enum Limit {
    Count(Keep),
    Within(Period, Option<Timestamp>),
}

impl Rule {
    /// Whether the rule keeps this version, the next older one, and why.
    fn look(&mut self, version: &Zoned, number: usize, is_oldest: bool) -> Option<Reason> {
        match &self.limit {
            Limit::Count(keep) if !keep.has_left() => return None,
            Limit::Within(_, Some(after)) if version.timestamp() <= *after => return None,
            _ => {}
        }
        let period = self.calendar.period_of(version, number);
        let is_newest = self.last != Some(period);
        if !is_newest && !is_oldest {
            return None;
        }
        self.last = Some(period);
        Some(match &mut self.limit {
            Limit::Count(keep) => {
                *keep = keep.less_one();
                if is_newest { Reason::Newest(self.calendar) } else { Reason::Oldest(self.calendar) }
            }
            Limit::Within(within, _) if is_newest => Reason::NewestWithin(self.calendar, *within),
            Limit::Within(within, _) => Reason::OldestWithin(self.calendar, *within),
        })
    }
}

impl Calendar {
    /// A number that two versions share if and only if they are of the same period.
    fn period_of(self, time: &Zoned, number: usize) -> i64 {
        let (year, month) = (i64::from(time.year()), i64::from(time.month()));
        let day = (year * 100 + month) * 100 + i64::from(time.day());
        match self {
            Self::Last => number as i64,
            Self::Hourly => day * 100 + i64::from(time.hour()),
            Self::Daily => day,
            Self::Weekly => {
                let week = time.date().iso_week_date();
                i64::from(week.year()) * 100 + i64::from(week.week())
            }
            Self::Monthly => year * 100 + month,
            Self::Yearly => year,
        }
    }
}

/// For each version, in the order given, the reasons for keeping it. Without reasons it is to be
/// forgotten. A policy without rules keeps nothing: the caller asks [`Policy::is_empty`] first.
/// `now_ms` only tells which versions are in the future.
///
/// Versions without a confirmed time are kept by any rule. The others are judged as if those did
/// not exist. If a version is kept whose backup could not read everything, the last complete one
/// before it of the same series is kept as well.
pub fn judge(policy: &Policy, zone: &TimeZone, now_ms: u64, candidates: &[Candidate<'_>]) -> Vec<Vec<Reason>> {
    let mut judged: Vec<Vec<Reason>> = candidates.iter().map(|candidate| uncounted(policy, candidate)).collect();
    let mut order: Vec<usize> = (0..candidates.len()).filter(|place| candidates[*place].is_confirmed).collect();
    order.sort_by_key(|place| std::cmp::Reverse((candidates[*place].time_ms, candidates[*place].id)));
    let newest = order.iter().map(|place| candidates[*place].time_ms).find(|time_ms| *time_ms <= now_ms);
    let newest = newest.map(|time_ms| zoned(time_ms, zone));
    let after = |period: Period| newest.as_ref().and_then(|newest| before(newest, period));
    let count = |calendar, keep| Rule { calendar, limit: Limit::Count(keep), last: None };
    let within = |calendar, period: Option<Period>| {
        period.map(|period| Rule { calendar, limit: Limit::Within(period, after(period)), last: None })
    };
    let mut rules = vec![
        count(Calendar::Last, policy.last),
        count(Calendar::Hourly, policy.hourly),
        count(Calendar::Daily, policy.daily),
        count(Calendar::Weekly, policy.weekly),
        count(Calendar::Monthly, policy.monthly),
        count(Calendar::Yearly, policy.yearly),
    ];
    let within_rules = [
        within(Calendar::Hourly, policy.within_hourly),
        within(Calendar::Daily, policy.within_daily),
        within(Calendar::Weekly, policy.within_weekly),
        within(Calendar::Monthly, policy.within_monthly),
        within(Calendar::Yearly, policy.within_yearly),
    ];
    rules.extend(within_rules.into_iter().flatten());
    let mut bytes = Some(0u64);
    for (number, place) in order.iter().enumerate() {
        let candidate = &candidates[*place];
        let time = zoned(candidate.time_ms, zone);
        let reasons = &mut judged[*place];
        if let Some(period) = policy.within
            && after(period).is_none_or(|after| time.timestamp() > after)
        {
            reasons.push(Reason::Within(period));
        }
        let is_oldest = number + 1 == order.len();
        reasons.extend(rules.iter_mut().filter_map(|rule| rule.look(&time, number, is_oldest)));
        if let Some(size) = policy.size {
            // The first that does not fit ends it: the user did not ask for a history with holes.
            bytes = bytes.and_then(|sum| sum.checked_add(candidate.bytes.0)).filter(|sum| *sum <= size.0);
            reasons.extend(bytes.map(|_| Reason::Size(size)));
        }
    }
    keep_last_complete(candidates, &order, &mut judged);
    judged
}

/// Keeps the newest complete version of each series beside newer ones that are not complete.
/// `order` has the places of the versions that count, newest first.
fn keep_last_complete(candidates: &[Candidate<'_>], order: &[usize], judged: &mut [Vec<Reason>]) {
    // Whether an incomplete one is kept, of each series without a complete one so far.
    let mut newer: BTreeMap<SeriesKey, bool> = BTreeMap::new();
    let mut done: BTreeSet<SeriesKey> = BTreeSet::new();
    for place in order {
        let Candidate { series, is_complete, .. } = candidates[*place];
        if done.contains(&series) {
            continue;
        }
        let is_newer_kept = newer.entry(series).or_default();
        match is_complete {
            false => *is_newer_kept |= !judged[*place].is_empty(),
            true => {
                if *is_newer_kept && judged[*place].is_empty() {
                    judged[*place].push(Reason::LastComplete);
                }
                done.insert(series);
            }
        }
    }
}

/// The reasons that keep a version in addition, so that it counts for no rule.
fn uncounted(policy: &Policy, candidate: &Candidate<'_>) -> Vec<Reason> {
    let pinned = candidate.is_pinned.then_some(Reason::Pinned);
    let named = policy.ids.contains(&candidate.id).then_some(Reason::Id);
    let has = |tags: &&Vec<String>| tags.iter().all(|tag| candidate.tags.contains(tag));
    let tagged = policy.tags.iter().filter(has).map(|tags| Reason::Tags(tags.clone()));
    // Without rules, nothing is judged by time.
    let unconfirmed = (!candidate.is_confirmed && !policy.is_empty()).then_some(Reason::Unconfirmed);
    pinned.into_iter().chain(named).chain(tagged).chain(unconfirmed).collect()
}

fn zoned(time_ms: u64, zone: &TimeZone) -> Zoned {
    let ms = i64::try_from(time_ms).unwrap_or(i64::MAX);
    // A damaged or absurd time is the last there is.
    Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX).to_zoned(zone.clone())
}

/// The moment one period before another; `None` if it is before the range of times: then everything
/// is after it.
fn before(time: &Zoned, period: Period) -> Option<Timestamp> {
    let calendar = Span::new()
        .try_years(period.years)
        .and_then(|span| span.try_months(period.months))
        .and_then(|span| span.try_days(period.days));
    let day = time.checked_sub(calendar.ok()?).ok()?;
    let before = day.checked_sub(Span::new().try_hours(period.hours).ok()?).ok()?;
    Some(before.timestamp())
}
