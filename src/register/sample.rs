//! How often to look at random before everything was seen. Pure.

/// The chance, over all places together, that one was never met.
const MISS: f64 = 1e-6;
/// More is not asked for: it would load Okapi, and a system that needs it has other ways to look.
const MOST: u32 = 1000;

/// How many draws it takes, at least `floor`, until each of `places` equally likely places was met, but for one chance in a million.
pub(crate) fn draws(places: usize, floor: u16) -> u32 {
    let floor = u32::from(floor);
    let Ok(places) = u16::try_from(places.max(1)) else {
        return MOST.max(floor);
    };
    if places == 1 {
        return floor;
    }
    let places = f64::from(places);
    // Each draw misses one given place with probability 1 - 1/places.
    let mut draws = 0;
    let mut missed = places;
    while missed > MISS && draws < MOST {
        missed *= 1.0 - 1.0 / places;
        draws += 1;
    }
    draws.max(floor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_place_needs_no_more_than_asked_for() {
        assert_eq!(draws(1, 20), 20);
        assert_eq!(draws(0, 1), 1);
    }

    #[test]
    fn more_places_need_more_draws() {
        // ln(1e-6 / 2) / ln(1/2) = 20.9; ln(1e-6 / 3) / ln(2/3) = 36.8; ln(1e-6 / 6) / ln(5/6) = 85.6
        assert_eq!(draws(2, 1), 21);
        assert_eq!(draws(3, 20), 37);
        assert_eq!(draws(6, 20), 86);
        assert_eq!(draws(3, 50), 50);
    }

    #[test]
    fn there_is_an_end_to_it() {
        assert_eq!(draws(5000, 1), MOST);
        assert_eq!(draws(usize::MAX, 1), MOST);
    }
}
