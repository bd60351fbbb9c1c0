"""Web Push: notifications to browsers of people who turned them on, also while the page is closed."""
