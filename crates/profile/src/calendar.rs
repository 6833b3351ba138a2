//! Schedules as users write them, and the times that they mean.
//!
//! The words: `hourly`, `daily 02:30`, `weekly Sun 03:00`, `monthly 15 04:00`, `Mon..Fri 18:00`,
//! `every 15m`. Times are local. A time that a change of the clocks skips is taken an hour later,
//! and one that comes twice counts once.

use std::time::Duration;

use jiff::civil::{Date, Time, Weekday};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

use crate::duration::parse_duration;

/// Days that are searched for the next or the last time: the 31st of a month may be two months
/// away.
const DAYS_SEARCHED: i32 = 64;

/// English names of the days, as systemd has them.
const DAYS: [(&str, Weekday); 7] = [
    ("Mon", Weekday::Monday),
    ("Tue", Weekday::Tuesday),
    ("Wed", Weekday::Wednesday),
    ("Thu", Weekday::Thursday),
    ("Fri", Weekday::Friday),
    ("Sat", Weekday::Saturday),
    ("Sun", Weekday::Sunday),
];

/// When a profile runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Schedule {
    /// At the times of these rules.
    Rules(Vec<Rule>),
    /// An expression that only systemd understands.
    OnCalendar(String),
}

/// The days and the times of day of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    days: Days,
    times: Times,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Days {
    /// Days of the week: bit 0 is Monday.
    Week(u8),
    /// A day of the month.
    Month(i8),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Times {
    /// One minute of the day.
    At(u16),
    /// Every number of minutes, from midnight. It divides an hour, or is whole hours that divide a
    /// day.
    Every(u16),
}

const EACH_DAY: u8 = 0b111_1111;
const MINUTES: u16 = 24 * 60;

impl Schedule {
    /// Reads one line of a schedule.
    ///
    /// # Errors
    /// The text is no schedule.
    pub fn parse(text: &str) -> Result<Rule, String> {
        let words: Vec<_> = text.split_whitespace().collect();
        let rule = match *words.as_slice() {
            ["hourly"] => Some(Rule { days: Days::Week(EACH_DAY), times: Times::Every(60) }),
            ["every", period] => return every(period),
            ["daily"] => Some(Rule { days: Days::Week(EACH_DAY), times: Times::At(0) }),
            ["daily", time] => at(Days::Week(EACH_DAY), time),
            ["weekly"] => at(Days::Week(1), "00:00"),
            ["weekly", days] => days_of(days).and_then(|days| at(days, "00:00")),
            ["weekly", days, time] => days_of(days).and_then(|days| at(days, time)),
            ["monthly"] => at(Days::Month(1), "00:00"),
            ["monthly", day] => month_day(day).and_then(|days| at(days, "00:00")),
            ["monthly", day, time] => month_day(day).and_then(|days| at(days, time)),
            [days, time] => days_of(days).and_then(|days| at(days, time)),
            _ => None,
        };
        rule.ok_or_else(|| {
            format!(
                "{text:?} is no schedule; write hourly, \"daily 02:30\", \"weekly Sun 03:00\", \"monthly 15 04:00\", \
                 \"Mon..Fri 18:00\" or \"every 15m\""
            )
        })
    }

    /// A schedule of several rules; `None` without any.
    pub fn all(rules: Vec<Rule>) -> Option<Self> {
        if rules.is_empty() { None } else { Some(Self::Rules(rules)) }
    }

    /// The expressions of systemd for this schedule, one for each `OnCalendar=`.
    pub fn systemd(&self) -> Vec<String> {
        match self {
            Self::Rules(rules) => rules.iter().map(Rule::systemd).collect(),
            Self::OnCalendar(text) => vec![text.clone()],
        }
    }

    /// The last time that is not after `now_ms`. `None` if only systemd knows it.
    pub fn last(&self, now_ms: u64, zone: &TimeZone) -> Option<u64> {
        let Self::Rules(rules) = self else { return None };
        let (now, today) = day_of(now_ms, zone)?;
        let days = (0..=DAYS_SEARCHED).filter_map(|days| today.checked_sub(days.days()).ok());
        rules
            .iter()
            .filter_map(|rule| days.clone().find_map(|date| rule.on(date, zone).filter(|time| *time <= now).max()))
            .max()
            .and_then(ms)
    }

    /// The first time after `now_ms`. `None` if only systemd knows it.
    pub fn next(&self, now_ms: u64, zone: &TimeZone) -> Option<u64> {
        let Self::Rules(rules) = self else { return None };
        let (now, today) = day_of(now_ms, zone)?;
        let days = (0..=DAYS_SEARCHED).filter_map(|days| today.checked_add(days.days()).ok());
        rules
            .iter()
            .filter_map(|rule| days.clone().find_map(|date| rule.on(date, zone).filter(|time| *time > now).min()))
            .min()
            .and_then(ms)
    }
}

fn day_of(now_ms: u64, zone: &TimeZone) -> Option<(Timestamp, Date)> {
    let now = Timestamp::from_millisecond(i64::try_from(now_ms).ok()?).ok()?;
    Some((now, now.to_zoned(zone.clone()).date()))
}

fn ms(time: Timestamp) -> Option<u64> {
    u64::try_from(time.as_millisecond()).ok()
}

fn every(period: &str) -> Result<Rule, String> {
    let wrong = || {
        format!(
            "\"every {period}\" does not divide a day evenly; use 5m, 10m, 15m, 20m, 30m, 1h, 2h, 3h, 4h, 6h, 8h or 12h"
        )
    };
    let duration = parse_duration(period)?;
    let minutes = u16::try_from(duration.as_secs() / 60).map_err(|_| wrong())?;
    let is_whole = duration == Duration::from_secs(u64::from(minutes) * 60) && minutes > 0;
    match minutes {
        MINUTES => Ok(Rule { days: Days::Week(EACH_DAY), times: Times::At(0) }),
        _ if !is_whole => Err(wrong()),
        1..=60 if 60 % minutes == 0 => Ok(Rule { days: Days::Week(EACH_DAY), times: Times::Every(minutes) }),
        61.. if minutes.is_multiple_of(60) && MINUTES.is_multiple_of(minutes) => {
            Ok(Rule { days: Days::Week(EACH_DAY), times: Times::Every(minutes) })
        }
        _ => Err(wrong()),
    }
}

fn at(days: Days, time: &str) -> Option<Rule> {
    let (hour, minute) = time.split_once(':')?;
    let number = |text: &str, below: u16| {
        let is_plain = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u16>().ok().filter(|number| is_plain && *number < below)
    };
    let minutes = number(hour, 24)? * 60 + number(minute, 60).filter(|_| minute.len() == 2)?;
    Some(Rule { days, times: Times::At(minutes) })
}

fn month_day(text: &str) -> Option<Days> {
    text.parse().ok().filter(|day| (1..=31).contains(day)).map(Days::Month)
}

/// `Mon`, `Mon,Thu`, `Mon..Fri`.
fn days_of(text: &str) -> Option<Days> {
    let mut mask = 0u8;
    for part in text.split(',') {
        match part.split_once("..") {
            Some((first, last)) => {
                let (first, last) = (day_number(first)?, day_number(last)?);
                // `Fri..Mon` goes over the weekend.
                let count = (last + 7 - first) % 7;
                (0..=count).for_each(|offset| mask |= 1 << ((first + offset) % 7));
            }
            None => mask |= 1 << day_number(part)?,
        }
    }
    Some(Days::Week(mask))
}

fn day_number(name: &str) -> Option<usize> {
    DAYS.iter().position(|(day, _)| day.eq_ignore_ascii_case(name))
}

impl Rule {
    fn minutes(&self) -> impl Iterator<Item = u16> {
        let (first, step) = match self.times {
            Times::At(minute) => (minute, MINUTES),
            Times::Every(step) => (0, step),
        };
        (first..MINUTES).step_by(usize::from(step))
    }

    /// The times of a day. There is none if the day does not fit.
    fn on(&self, date: Date, zone: &TimeZone) -> impl Iterator<Item = Timestamp> {
        let fits = match self.days {
            Days::Week(mask) => mask & (1 << date.weekday().to_monday_zero_offset()) != 0,
            Days::Month(day) => date.day() == day,
        };
        let minutes = fits.then(|| self.minutes()).into_iter().flatten();
        let times = minutes.filter_map(move |minute| {
            let (hour, minute) = (i8::try_from(minute / 60).ok()?, i8::try_from(minute % 60).ok()?);
            let time = Time::new(hour, minute, 0, 0).ok()?;
            Some(date.to_datetime(time).to_zoned(zone.clone()).ok()?.timestamp())
        });
        times.collect::<Vec<_>>().into_iter()
    }

    fn systemd(&self) -> String {
        let date = match self.days {
            Days::Month(day) => format!("*-*-{day:02}"),
            Days::Week(_) => "*-*-*".to_owned(),
        };
        let days = match self.days {
            Days::Week(mask) if mask != EACH_DAY => {
                let named = DAYS.iter().enumerate().filter(|(number, _)| mask & (1 << number) != 0);
                named.map(|(_, (name, _))| *name).collect::<Vec<_>>().join(",") + " "
            }
            _ => String::new(),
        };
        let time = match self.times {
            Times::At(minute) => format!("{:02}:{:02}", minute / 60, minute % 60),
            Times::Every(60) => "*:00".to_owned(),
            Times::Every(step) if step < 60 => format!("*:00/{step}"),
            Times::Every(step) => format!("00/{}:00", step / 60),
        };
        format!("{days}{date} {time}")
    }
}

impl std::fmt::Display for Schedule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.systemd().join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(text: &str) -> Schedule {
        Schedule::all(vec![Schedule::parse(text).expect(text)]).expect("a rule")
    }

    fn at(text: &str) -> u64 {
        let time: Timestamp = text.parse().expect("a time");
        time.as_millisecond().cast_unsigned()
    }

    #[test]
    fn words_become_expressions_of_systemd() {
        for (text, expression) in [
            ("hourly", "*-*-* *:00"),
            ("daily", "*-*-* 00:00"),
            ("daily 2:30", "*-*-* 02:30"),
            ("weekly", "Mon *-*-* 00:00"),
            ("weekly Sun 03:00", "Sun *-*-* 03:00"),
            ("monthly 15 04:00", "*-*-15 04:00"),
            ("Mon..Fri 18:00", "Mon,Tue,Wed,Thu,Fri *-*-* 18:00"),
            ("sat,Wed 18:00", "Wed,Sat *-*-* 18:00"),
            ("Fri..Mon 18:00", "Mon,Fri,Sat,Sun *-*-* 18:00"),
            ("every 15m", "*-*-* *:00/15"),
            ("every 6h", "*-*-* 00/6:00"),
            ("every 1d", "*-*-* 00:00"),
        ] {
            assert_eq!(schedule(text).systemd(), [expression], "{text}");
        }
    }

    #[test]
    fn other_words_are_refused() {
        for text in [
            "",
            "sometimes",
            "daily 25:00",
            "daily 2:3",
            "daily 02:30:00",
            "every 7m",
            "every 90m",
            "every 30s",
            "every 0m",
            "every 5h",
            "Xyz 10:00",
            "monthly 32",
            "weekly 3",
            "Mon..Xyz 10:00",
            "every 2d",
        ] {
            assert!(Schedule::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_times_around_now_are_found() {
        let utc = TimeZone::UTC;
        // A Thursday.
        let now = at("2026-11-26T10:07:30Z");
        for (text, last, next) in [
            ("every 15m", "2026-11-26T10:00:00Z", "2026-11-26T10:15:00Z"),
            ("every 6h", "2026-11-26T06:00:00Z", "2026-11-26T12:00:00Z"),
            ("daily 02:30", "2026-11-26T02:30:00Z", "2026-11-27T02:30:00Z"),
            ("daily 22:00", "2026-11-25T22:00:00Z", "2026-11-26T22:00:00Z"),
            ("Mon,Wed 18:00", "2026-11-25T18:00:00Z", "2026-11-30T18:00:00Z"),
            ("monthly 31 04:00", "2026-10-31T04:00:00Z", "2026-12-31T04:00:00Z"),
        ] {
            let schedule = schedule(text);
            assert_eq!(
                (schedule.last(now, &utc), schedule.next(now, &utc)),
                (Some(at(last)), Some(at(next))),
                "{text}"
            );
        }
        // The very moment counts as past.
        let daily = schedule("daily 02:30");
        let moment = at("2026-11-26T02:30:00Z");
        assert_eq!(daily.last(moment, &utc), Some(moment));
        assert_eq!(daily.next(moment, &utc), Some(at("2026-11-27T02:30:00Z")));
        let raw = Schedule::OnCalendar("Mon *-*-1..7".to_owned());
        assert_eq!((raw.last(now, &utc), raw.next(now, &utc)), (None, None));
    }

    #[test]
    fn the_nearest_of_several_rules_counts() {
        let utc = TimeZone::UTC;
        let rules = ["daily 02:30", "daily 14:00"].map(|text| Schedule::parse(text).expect(text));
        let both = Schedule::all(rules.to_vec()).expect("rules");
        let now = at("2026-11-26T10:00:00Z");
        assert_eq!(both.last(now, &utc), Some(at("2026-11-26T02:30:00Z")));
        assert_eq!(both.next(now, &utc), Some(at("2026-11-26T14:00:00Z")));
        assert_eq!(both.systemd(), ["*-*-* 02:30", "*-*-* 14:00"]);
        assert_eq!(Schedule::all(Vec::new()), None);
    }

    /// 02:30 does not exist on the day when summer time begins in Berlin, and comes twice when it
    /// ends.
    #[test]
    fn a_change_of_the_clocks_loses_and_repeats_nothing() {
        let Ok(berlin) = TimeZone::get("Europe/Berlin") else { return };
        let daily = schedule("daily 02:30");
        let next = daily.next(at("2026-03-28T12:00:00Z"), &berlin).expect("a time");
        assert_eq!(next, at("2026-03-29T01:30:00Z"), "03:30 in summer time");
        assert_eq!(daily.next(next, &berlin), Some(at("2026-03-30T00:30:00Z")));
        let once = daily.next(at("2026-10-24T12:00:00Z"), &berlin).expect("a time");
        assert_eq!(once, at("2026-10-25T00:30:00Z"));
        assert_eq!(daily.next(once, &berlin), Some(at("2026-10-26T01:30:00Z")));
    }
}
