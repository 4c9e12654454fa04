-- Id of the run of the service that has opened the database; NULL after a clean stop.
ALTER TABLE store_state ADD COLUMN open_run TEXT;
